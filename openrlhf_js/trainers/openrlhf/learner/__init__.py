"""What runs in the actors that train the policy and the critic."""
