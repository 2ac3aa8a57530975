"""What turns a query into kept results, shared by both sides so that what was calibrated is what is served."""
