"""A race, or a comparison of two, as one HTML file that opens anywhere, without network."""
