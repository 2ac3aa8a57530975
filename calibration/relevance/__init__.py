"""The relevance model: which queries it is fitted on, the fit, and the choice between policies."""
