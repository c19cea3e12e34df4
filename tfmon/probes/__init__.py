"""The machine: readings of the host, of lanes' process trees and of GPUs, each taken in a thread of its own."""
