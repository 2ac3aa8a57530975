"""Releases whose threshold rests on too little evidence: when a release is one, and what its figures are worth."""
