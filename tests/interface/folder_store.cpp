// Worlds that find each other through a store of one's own: each member is a process.
#include "folder_store.hpp"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

#include "manyworlds/mw.hpp"

namespace {

using namespace std::chrono_literals;

/// Forms the world twice, with what the first time has left in the folder.
int run_member(const std::filesystem::path& folder, int rank) {
  folder_store store(folder);
  mw::runtime rt;
  const auto member = [&]() -> mw::task<void> {
    for (int epoch = 1; epoch <= 2; ++epoch) {
      mw::world w(rt, store, {.name = "met", .rank = rank, .size = 2, .form = 20s});
      co_await w;
      int word = 42 + rank;
      if (rank == 0) {
        co_await w.send(mw::object(word), mw::to{1});
      } else {
        co_await w.recv(mw::object(word), mw::from{0});
      }
      if (word != 42 || w.epoch() != static_cast<unsigned>(epoch)) std::abort();
      co_await w.leave();
    }
  };
  rt.run(member());
  return 0;
}

}  // namespace

int main() {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("met-" + std::to_string(::getpid()));
  const pid_t child = ::fork();
  if (child == 0) return run_member(folder, 1);
  const int mine = run_member(folder, 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  std::filesystem::remove_all(folder);
  std::puts(mine == 0 && status == 0 ? "met twice through a folder"
                                     : "they did not meet");
  return mine != 0 || status != 0;
}
