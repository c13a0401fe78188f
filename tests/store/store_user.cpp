// A client of ours at servers that a test has started: what torch_peer.py does with
// PyTorch's. It prints for each operation how it ended.
#include <cstdio>
#include <exception>
#include <string>

#include "manyworlds/mw.hpp"
#include "store/torch_operations.hpp"

namespace mw = manyworlds;
using manyworlds_tests::torch_operations;

namespace {

mw::task<void> use(mw::runtime& rt, const std::string& name,
                   const std::string& endpoint) {
  const auto found = torch_operations.find(name);
  if (found == torch_operations.end()) co_return;
  mw::tcp_store st(rt, endpoint);
  mw::tcp_store other(rt, endpoint);
  std::string end = "ok " + name;
  try {
    co_await found->second(st, other);
  } catch (const std::exception& e) {
    end = "FAILED " + name + ": " + e.what();
  }
  std::puts(end.c_str());
  std::fflush(stdout);
}

}  // namespace

/// store_user OPERATION=PORT...
int main(int argc, char** argv) {
  mw::runtime rt(mw::runtime_options{.log_from = mw::log_level::error});
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) return 2;
    rt.run(use(rt, word.substr(0, equals), "127.0.0.1:" + word.substr(equals + 1)));
  }
}
