"""What judged traffic teaches: simulated users judge what the service shows them."""
