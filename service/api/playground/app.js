// The page: being written. Under /playground it asks the service; elsewhere it is the page of `taugate judge --web`.
