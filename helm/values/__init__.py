"""The chart's values: names, types, bounds, defaults and what they mean, as models. `make chart` writes them out."""
