mod crash;
mod hostile;
mod lab;
mod life;
