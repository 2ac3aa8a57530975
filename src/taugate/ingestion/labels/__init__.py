"""Labels that people give: as judges of a data set, or as users of the running service."""
