"""Methods that exchange messages of their own (`dprbft.updates`): their contract and site half."""
