"""The screen: pure functions from a snapshot to rows, and a thin Textual shell that repaints what changed."""
