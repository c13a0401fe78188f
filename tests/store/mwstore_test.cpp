// The tool mwstore, as a user runs it: against our server, a folder, and an etcd.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "store/etcd_server.hpp"
#include "store/store_fixture.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("mwstore");

#if defined(MANYWORLDS_MWSTORE)

namespace {

struct ran {
  int code = -1;
  std::string output;
};

/// Runs mwstore with these words of a shell; its errors come with its output.
ran mwstore(const std::string& words) {
  const std::string command = "timeout 30 " MANYWORLDS_MWSTORE " " + words + " 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "re");
  REQUIRE(pipe);
  ran r;
  std::array<char, 4096> part;
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe))
    r.output.append(part.data(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) r.code = WEXITSTATUS(status);
  return r;
}

/// mwstore in the background, with its first line; SIGTERM ends it.
class running {
 public:
  running(std::vector<std::string> words, const std::filesystem::path& output)
      : output_(output) {
    words.insert(words.begin(), MANYWORLDS_MWSTORE);
    pid_ = start_program(std::move(words), output);
  }
  running(const running&) = delete;
  running& operator=(const running&) = delete;
  ~running() { static_cast<void>(end()); }

  /// Returns its exit code.
  int end() {
    if (pid_ <= 0) return 0;
    ::kill(pid_, SIGTERM);
    return wait();
  }
  int wait() {
    int status = 0;
    const auto over = [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; };
    if (!comes_true(over)) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &status, 0);
    }
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  [[nodiscard]] std::string output() const {
    std::ifstream file(output_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  /// The first line, once it is there.
  [[nodiscard]] std::string line() const {
    REQUIRE(comes_true([this] { return output().find('\n') != std::string::npos; }));
    const std::string all = output();
    return all.substr(0, all.find('\n'));
  }

 private:
  std::filesystem::path output_;
  pid_t pid_ = 0;
};

/// What each kind of store must do.
void use(const std::string& url, const std::string& options) {
  INFO("store: ", url);
  const auto at = [&](const std::string& command, const std::string& words) {
    return mwstore(command + " " + options + " '" + url + "' " + words);
  };
  CHECK(at("set", "k value").code == 0);
  const ran got = at("get", "k");
  CHECK(got.code == 0);
  CHECK(got.output == "value\n");
  CHECK(at("get", "k --json").output == "{\"key\":\"k\",\"value\":\"value\"}\n");
  const ran missing = at("get", "none");
  CHECK(missing.code == 1);
  CHECK(missing.output.find("has no key \"none\"\n") != std::string::npos);
  CHECK(at("add", "n 5").output == "5\n");
  CHECK(at("add", "n -- -2").output == "3\n");
  CHECK(at("keys", "").output == "k\nn\n");
  CHECK(at("keys", "n").output == "n\n");
  CHECK(at("wait", "k n").code == 0);
  const ran late = at("wait", "k never --timeout 0.05");
  CHECK(late.code == 1);
  CHECK(late.output.find("wait of \"never\" timed out") != std::string::npos);
  CHECK(std::count(late.output.begin(), late.output.end(), '\n') == 1);
  CHECK(at("erase", "n").code == 0);
  CHECK(at("erase", "n").code == 1);
}

}  // namespace

TEST_CASE("mwstore serves a store, with a secret file, and its relay needs none") {
  const own_folder folder;
  std::filesystem::create_directories(folder.path);
  const std::string secret = (folder.path / "secret").string();
  CHECK(mwstore("secret " + secret).code == 0);
  CHECK(mwstore("secret " + secret).output ==
        "mwstore: secret file \"" + secret + "\": File exists\n");
  running server(
      {"serve", "--listen", "127.0.0.1:0", "127.0.0.2:0", "--secret-file", secret},
      folder.path / "serve");
  const std::string url = server.line();
  use(url, "--secret-file " + secret);
  const ran none = mwstore("get " + url + " k --timeout 0.3");
  CHECK(none.code == 3);
  CHECK(none.output.find("mwstore: store " + url + ": ") == 0);
  running relay({"relay", url, "--secret-file", secret}, folder.path / "relay");
  CHECK(mwstore("get " + relay.line() + " k").output == "value\n");

  ::chmod(secret.c_str(), 0644);
  const ran open = mwstore("get " + url + " k --secret-file " + secret);
  CHECK(open.code == 3);
  CHECK(open.output ==
        "mwstore: secret file \"" + secret +
            "\": others than its owner may use it (mode 0644): chmod 600 it\n");
  CHECK(relay.end() == 0);
  CHECK(server.end() == 0);
}

TEST_CASE("mwstore serves at a socket that it was started with") {
  const own_folder folder;
  std::filesystem::create_directories(folder.path);
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&at), size) == 0);
  REQUIRE(::listen(fd, 16) == 0);
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  running server({"serve", "--listen-fd", std::to_string(fd)}, folder.path / "serve");
  ::close(fd);
  CHECK(server.line() == "tcp://127.0.0.1:" + std::to_string(ntohs(at.sin_port)));
  CHECK(mwstore("set " + server.line() + " k v").code == 0);
}

TEST_CASE("mwstore uses a folder, and watches it by looking") {
  const own_folder folder;
  std::filesystem::create_directories(folder.path);
  const std::string url = "file://" + (folder.path / "store").string();
  use(url, "");
  running watching({"watch", url, "w/", "--all", "--interval", "0.02", "--count", "2"},
                   folder.path / "watch");
  // It has looked once when it tells of the first.
  CHECK(comes_true([&] {
    mwstore("add " + url + " w/n 1");
    return watching.output().find("set w/n ") == 0;
  }));
  mwstore("erase " + url + " w/n");
  CHECK(watching.wait() == 0);
  // What cannot be printed has not been done.
  CHECK(mwstore("set " + url + " k v").code == 0);
  CHECK(mwstore("get " + url + " k > /dev/full").code == 3);
}

TEST_CASE("mwstore uses an etcd, and watches it") {
  if (!can_use_etcd_here()) {
    static_cast<void>(etcd_is_missing_here());
    return;
  }
  std::string url = shared_etcd().endpoint();
  url.replace(0, 4, "etcd");
  const std::string prefix = "'" + new_etcd_prefix() + "'";
  use(url, "--prefix " + prefix);
  const own_folder folder;
  std::filesystem::create_directories(folder.path);
  running watching({"watch", url, "w", "--json", "--count", "2", "--prefix",
                    prefix.substr(1, prefix.size() - 2)},
                   folder.path / "watch");
  CHECK(comes_true([&] {
    mwstore("add " + url + " w 1 --prefix " + prefix);
    return watching.output().find(R"({"erased":false,"key":"w","value":")") == 0;
  }));
  mwstore("erase " + url + " w --prefix " + prefix);
  CHECK(watching.wait() == 0);
}

TEST_CASE("mwstore says in one line what is wrong, and its exit code tells which kind") {
  const auto fails = [](const std::string& words, int code, const std::string& said) {
    const ran r = mwstore(words);
    INFO("words: ", words, " output: ", r.output);
    CHECK(r.code == code);
    CHECK(r.output.find("mwstore: ") == 0);
    CHECK(r.output.find(said) != std::string::npos);
    CHECK(std::count(r.output.begin(), r.output.end(), '\n') == 1);
  };
  fails("", 2, "subcommand");
  fails("get", 2, "store is required");
  fails("get ftp://a:1 k", 2, "\"ftp://a:1\" names no store: give tcp://host:port");
  fails("get tcp://nowhere k", 2, "give host:port");
  fails("nothing tcp://127.0.0.1:1", 2, "\"nothing\" is no command");
  fails("add tcp://127.0.0.1:1 k x", 2, "\"x\" is no number");
  fails("add tcp://127.0.0.1:1 k 9223372036854775808", 2, "is no number of 64 bits");
  fails("watch tcp://127.0.0.1:1 k --count -1", 2, "--count");
  fails("serve --listen 0.0.0.0:0", 2, "give --secret-file FILE, or --insecure");
  fails("set tcp://127.0.0.1:1 k - <&-", 2, "cannot read standard input: Bad file");
  fails("set tcp://127.0.0.1:1 k - < /", 2, "cannot read standard input: Is a directory");
  fails("set tcp://127.0.0.1:1 k - < /dev/zero", 2, "more than the 8388608 bytes");
  const std::string closed = "127.0.0.1:" + std::to_string(free_port());
  fails("get tcp://" + closed + " k --timeout 0.1", 3, "the store is unreachable");
  fails("get tcp://" + closed + " k --secret-file /nowhere/s", 3,
        "secret file \"/nowhere/s\"");
#if MANYWORLDS_HAS_ETCD
  fails("get etcd://" + closed + " k --timeout 0.1", 3, "the store is unreachable");
#endif
  for (const std::string command : {"get", "erase", "keys"}) {
    fails(command + " file:///tmp/mw-no-folder/of-mine k", 3,
          "there is no folder \"/tmp/mw-no-folder/of-mine\"");
  }
  CHECK_FALSE(std::filesystem::exists("/tmp/mw-no-folder"));
  fails("set file:///proc/none k v", 3, "file store \"/proc/none\"");
  const ran help = mwstore("--help");
  CHECK(help.code == 0);
  CHECK(help.output.find("Exit codes: 0 done; 1 the key is not set") !=
        std::string::npos);
}

#else

TEST_CASE("mwstore (skipped: built without CLI11 or nlohmann_json)" * doctest::skip()) {}

#endif

TEST_SUITE_END();
