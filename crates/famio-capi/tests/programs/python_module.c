/* A C extension of Python that is linked with libfamio: loaded by dlopen. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <famio.h>
#include <fcntl.h>

/* commit(path, bytes): writes the bytes at the beginning, and syncs. */
static PyObject *commit(PyObject *self, PyObject *args) {
  const char *path, *bytes;
  Py_ssize_t length;
  (void)self;
  if (!PyArg_ParseTuple(args, "sy#", &path, &bytes, &length)) return NULL;
  int fd = nvopen(path, O_RDWR | O_CREAT, 0644);
  if (fd < 0 || nvpwrite(fd, bytes, (size_t)length, 0) != length || nvfsync(fd) || nvclose(fd)) {
    PyErr_SetString(PyExc_OSError, nverrmsg());
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"commit", commit, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "extension", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_extension(void) { return PyModule_Create(&module); }
