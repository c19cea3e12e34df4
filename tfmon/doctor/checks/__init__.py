"""The checks, a module for each subject: small pure functions from what is known to a finding."""
