"""The screens and pages."""
