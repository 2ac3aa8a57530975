"""How the repository itself is doing: what one search and one calibration run through."""
