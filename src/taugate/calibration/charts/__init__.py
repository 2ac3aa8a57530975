"""Charts as inline SVG, and numbers as a page writes them."""
