/** Loads libfamio through a native library that is linked with it. */
class Commit {
  static native String commit(String path, byte[] bytes);

  public static void main(String[] args) throws Exception {
    System.load(args[0]);
    // On a thread that was there before, on one that begins now, and with the collector at work.
    String[] said = new String[2];
    said[0] = commit(args[1], "from Java".getBytes());
    System.gc();
    Thread thread = new Thread(() -> said[1] = commit("/nowhere/file", new byte[1]));
    thread.start();
    thread.join();
    System.out.println(said[0] + "; " + said[1]);
  }
}
