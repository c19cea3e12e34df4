"""Readings of the host, of lanes' process trees and of GPUs."""
