"""Documents from files of many formats, for Taugate: PDF, web pages, office files, mails, tables."""
