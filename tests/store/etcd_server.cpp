#include "store/etcd_server.hpp"

// Asked by tests/main.cpp after each test: one that has started the shared etcd leaves
// it.
extern "C" bool libraries_keep_what_they_open() {
  return manyworlds_tests::shared_etcd_server::take_is_new();
}
