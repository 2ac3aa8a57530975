"""Reading a labelled data set in the layout of contract §1."""
