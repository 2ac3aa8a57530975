"""How much a cut may lose, and what is known of that: the loss at every threshold, and the rules that certify one."""
