"""Charts as inline SVG, and the number formats of the pages."""
