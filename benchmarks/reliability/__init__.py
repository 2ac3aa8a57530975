"""Bad days: kills, damage, overload and attacks, and what they leave."""
