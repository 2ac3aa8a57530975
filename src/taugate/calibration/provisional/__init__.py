"""Provisional releases, whose threshold rests on too little evidence, and the bias of their figures."""
