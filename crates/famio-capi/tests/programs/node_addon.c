/* A native addon of Node that is linked with libfamio: loaded by dlopen. */
#include <famio.h>
#include <fcntl.h>
#include <node_api.h>
#include <stddef.h>

/* commit(path, text): writes the text at the beginning, and syncs. */
static napi_value commit(napi_env env, napi_callback_info info) {
  napi_value args[2];
  size_t count = 2, length;
  char path[4096], text[4096];
  if (napi_get_cb_info(env, info, &count, args, NULL, NULL) != napi_ok ||
      napi_get_value_string_utf8(env, args[0], path, sizeof path, NULL) != napi_ok ||
      napi_get_value_string_utf8(env, args[1], text, sizeof text, &length) != napi_ok)
    return NULL;
  int fd = nvopen(path, O_RDWR | O_CREAT, 0644);
  if (fd < 0 || nvpwrite(fd, text, length, 0) != (ssize_t)length || nvfsync(fd) || nvclose(fd))
    napi_throw_error(env, NULL, nverrmsg());
  return NULL;
}

NAPI_MODULE_INIT() {
  napi_value function;
  napi_create_function(env, "commit", NAPI_AUTO_LENGTH, commit, NULL, &function);
  napi_set_named_property(env, exports, "commit", function);
  return exports;
}
