"""The commands of the command line, one module each; what takes long to load is imported when one runs."""
