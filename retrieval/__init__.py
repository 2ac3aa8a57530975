"""What turns a query into kept results, shared by calibration and service so that what was calibrated is what is served."""
