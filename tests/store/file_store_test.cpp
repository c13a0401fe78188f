// What a store in a folder has beyond the tables of all stores: other processes, killed
// ones, a full disk, and file systems without locks.
#include "manyworlds/store/file_store.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "store/child.hpp"
#include "store/store_fixture.hpp"

using namespace manyworlds_tests;

namespace {

std::size_t files_in(const std::filesystem::path& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    count += entry.is_regular_file();
  return count;
}

/// Locks the store's folder as another client does, until the end of the process.
int lock_folder(const std::filesystem::path& folder) {
  const int fd = ::open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC);
  struct flock all {};
  all.l_type = F_WRLCK;
  all.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &all) == 0 ? fd : -1;
}

}  // namespace

TEST_SUITE_BEGIN("file store");

TEST_CASE("processes that add to one key lose nothing, and a wait sees another's set") {
  own_folder folder;
  constexpr int each = 100;
  const auto adding = [&] {
    file_store st(folder.path.string());
    const auto body = [](store& st) -> task<void> {
      for (int i = 0; i < each; ++i) co_await st.add("sum", 1, 20s);
      co_await st.push("done", std::to_string(::getpid()));
    };
    sync_wait(body(st));
    return 0;
  };
  child first(adding);
  child second(adding);
  file_store st(folder.path.string());
  sync_wait(within(st.pop("done", 20s), patience));
  sync_wait(within(st.pop("done", 20s), patience));
  CHECK(first.status() == 0);
  CHECK(second.status() == 0);
  CHECK(sync_wait(st.get("sum", 5s)) == std::to_string(2 * each));
}

TEST_CASE("keys of any bytes and of 8 KiB have files of their own, which keys lists") {
  own_folder folder;
  file_store st(folder.path.string());
  const auto body = [](store& st) -> task<void> {
    std::vector<std::string> names = {
        "", ".", "..", "a/b", "../../etc/passwd", std::string("\0\xff\n", 3), "%41", "A"};
    names.push_back(std::string(8192, 'x'));
    names.push_back(std::string(8191, 'x') + "y");
    names.push_back(std::string(100, '\0'));
    for (const std::string& name : names) co_await st.set(name, "of " + name);
    CHECK(co_await st.num_keys() == static_cast<std::int64_t>(names.size()));
    for (const std::string& name : names)
      CHECK(co_await st.get(name, 5s) == "of " + name);
    std::vector<std::string> listed = co_await st.keys();
    std::sort(listed.begin(), listed.end());
    std::sort(names.begin(), names.end());
    CHECK(listed == names);
    for (const std::string& name : names) CHECK(co_await st.erase(name));
    CHECK(co_await st.num_keys() == 0);
  };
  sync_wait(body(st));
  CHECK(files_in(folder.path) == 1);
}

TEST_CASE("the lock of a process that was killed is free, and its draft is removed") {
  own_folder folder;
  file_store st(folder.path.string());
  int pipe_ends[2];
  REQUIRE(::pipe2(pipe_ends, O_CLOEXEC) == 0);
  child holder([&] {
    const bool has_it = lock_folder(folder.path) >= 0;
    std::ofstream(folder.path / "draft.1.killed") << "half a val";
    if (!has_it || ::write(pipe_ends[1], "l", 1) != 1) return 1;
    ::pause();
    return 0;
  });
  char locked = 0;
  REQUIRE(::read(pipe_ends[0], &locked, 1) == 1);
  const auto late = [](store& st) -> task<void> {
    const store_failure f = co_await failure_of(st.set("k", "v", 50ms));
    CHECK(f.kind == store_error_kind::unreachable);
    CHECK(f.reason == "another process holds the lock of the folder");
    CHECK(st.trouble() == f.reason);
    // Reading needs no lock.
    CHECK((co_await st.try_get("k") == std::nullopt));
  };
  sync_wait(late(st));
  holder.signal(SIGKILL);
  static_cast<void>(holder.status());
  sync_wait(st.set("k", "v", 10s));
  CHECK(st.trouble().empty());
  file_store next(folder.path.string());
  CHECK(!std::filesystem::exists(folder.path / "draft.1.killed"));
  CHECK(sync_wait(next.get("k", 5s)) == "v");
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

TEST_CASE("a full disk is named, the old value stays, and nothing is left half written") {
  own_folder folder;
  std::filesystem::create_directories(folder.path);
  if (::mount("tmpfs", folder.path.c_str(), "tmpfs", 0, "size=256k") != 0) {
    MESSAGE("skipped: mounting a small file system needs root (run the test as root)");
    return;
  }
  {
    file_store st((folder.path / "store").string());
    const auto body = [](store& st) -> task<void> {
      co_await st.set("k", "old");
      std::string large(512 * 1024, 'x');
      const store_failure f = co_await failure_of(st.set("k", large));
      CHECK(f.kind == store_error_kind::refused);
      CHECK(f.reason.find("cannot write \"/") == 0);
      CHECK(f.reason.find("No space left on device") != std::string::npos);
      CHECK(co_await st.get("k", 5s) == "old");
      co_await st.set("k", "new");
      CHECK(co_await st.get("k", 5s) == "new");
    };
    sync_wait(body(st));
    // The lock and the key.
    CHECK(files_in(folder.path) == 2);
  }
  ::umount2(folder.path.c_str(), MNT_DETACH);
}

TEST_CASE("a folder that cannot be made or written is named when the store is made") {
  const auto why = [](const std::string& path) -> std::string {
    try {
      file_store st(path);
    } catch (const std::exception& e) {
      return e.what();
    }
    return {};
  };
  own_folder folder;
  std::filesystem::create_directories(folder.path);
  const std::string file = (folder.path / "file").string();
  std::ofstream(file) << "no folder";
  CHECK(why(file + "/store") == "file store \"" + file + "/store\": Not a directory");
  CHECK(why(file) == "file store \"" + file + "\": Not a directory");
  // A file system of the kernel, in which none is made.
  CHECK(why("/proc/mw-store").find("file store \"/proc/mw-store\": ") == 0);
}

TEST_CASE("what others put among the keys, as a pipe or a link, holds up no operation") {
  own_folder folder;
  file_store st(folder.path.string());
  const std::filesystem::path keys = folder.path / "keys";
  REQUIRE(::mkfifo((keys / "k.pipe").c_str(), 0600) == 0);
  std::filesystem::create_symlink("/etc/passwd", keys / "k.link");
  const auto body = [](store& st) -> task<void> {
    co_await st.try_get("pipe", 10s);
    const store_failure f = co_await failure_of(st.try_get("link", 10s));
    CHECK(f.reason.find("k.link") != std::string::npos);
    co_await st.set("pipe", "value", 10s);
    CHECK(co_await st.try_get("pipe", 10s) == "value");
  };
  sync_wait(body(st));
}

TEST_CASE("a folder that is removed under the store is an error that names the file") {
  own_folder folder;
  file_store st(folder.path.string());
  std::filesystem::remove_all(folder.path);
  const auto body = [](store& st) -> task<void> {
    const store_failure f = co_await failure_of(st.set("k", "v"));
    CHECK(f.kind == store_error_kind::unreachable);
    CHECK(f.reason.find("cannot make \"/") == 0);
    CHECK(f.reason.find("No such file or directory") != std::string::npos);
  };
  sync_wait(body(st));
}

TEST_CASE(
    "a store may be destroyed while operations wait, and they end at their limits") {
  own_folder folder;
  std::future<store_error_kind> ended;
  {
    file_store st(folder.path.string());
    task<store_reply> waiting =
        st.perform(store_request(store_operation::get, {"never"}, 200ms));
    ended = std::async(std::launch::async, [t = std::move(waiting)]() mutable {
      try {
        sync_wait(std::move(t));
      } catch (const store_error& e) {
        return e.kind();
      }
      return store_error_kind::protocol;
    });
  }
  REQUIRE(ended.wait_for(patience) == std::future_status::ready);
  CHECK(ended.get() == store_error_kind::timed_out);
}

TEST_SUITE_END();
