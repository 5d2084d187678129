mod crash;
mod hostile;
mod life;
mod test_hooks;
