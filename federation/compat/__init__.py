"""Drop-ins: the client under the interfaces of other libraries; each is imported by itself."""
