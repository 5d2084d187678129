/* The native method of Commit.java. */
#include <famio.h>
#include <fcntl.h>
#include <jni.h>

JNIEXPORT jstring JNICALL Java_Commit_commit(JNIEnv *env, jclass class, jstring path, jbyteArray bytes) {
  (void)class;
  const char *name = (*env)->GetStringUTFChars(env, path, NULL);
  jsize length = (*env)->GetArrayLength(env, bytes);
  jbyte *from = (*env)->GetByteArrayElements(env, bytes, NULL);
  int fd = nvopen(name, O_RDWR | O_CREAT, 0644);
  int failed = fd < 0 || nvpwrite(fd, from, (size_t)length, 0) != length || nvfsync(fd) || nvclose(fd);
  (*env)->ReleaseByteArrayElements(env, bytes, from, JNI_ABORT);
  (*env)->ReleaseStringUTFChars(env, path, name);
  return (*env)->NewStringUTF(env, failed ? nverrmsg() : "committed");
}
