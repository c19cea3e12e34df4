"""The machine: readings of the host, of lanes' process trees and of GPUs, each taken in its own thread."""
