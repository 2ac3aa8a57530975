"""Files of many kinds, read as documents and written as a data set."""
