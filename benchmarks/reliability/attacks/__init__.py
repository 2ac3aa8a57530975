"""Attacks on a service of this machine, each bounded in count and time, each with one number that says who won."""
