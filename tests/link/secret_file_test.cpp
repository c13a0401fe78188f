#include "link/secret_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

using namespace manyworlds;

TEST_SUITE_BEGIN("secret file");

namespace {

/// A folder of one test.
struct own_secrets {
  own_secrets() { std::filesystem::create_directories(folder); }
  ~own_secrets() { std::filesystem::remove_all(folder); }
  [[nodiscard]] std::string made(const std::string& text, mode_t mode) const {
    const std::string path = folder / "secret";
    ::unlink(path.c_str());
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                 ("secret_file-" + std::to_string(::getpid()));
};

std::string why_refused(const std::string& path) {
  try {
    static_cast<void>(read_secret_file(path));
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a secret file that was made is read again, and only its owner may read it") {
  own_secrets own;
  const std::string path = own.folder / "made";
  make_secret_file(path);
  struct stat file {};
  REQUIRE(::stat(path.c_str(), &file) == 0);
  CHECK((file.st_mode & 07777) == 0600);
  const secret_text secret = read_secret_file(path);
  CHECK(secret.size() == 64);
  CHECK_THROWS_WITH_AS(make_secret_file(path),
                       ("secret file \"" + path + "\": File exists").c_str(),
                       std::runtime_error);
  CHECK(read_secret_file(path) == secret);
}

TEST_CASE("a secret file that others may read, an empty one and a long one are refused") {
  own_secrets own;
  CHECK(read_secret_file(own.made("pass word\r\n", 0600)).view() == "pass word");
  CHECK(read_secret_file(own.made(std::string(127, 'x'), 0400)).size() == 127);
  const std::string path = own.made("known", 0640);
  CHECK(why_refused(path) ==
        "secret file \"" + path +
            "\": others than its owner may use it (mode 0640): chmod 600 it");
  CHECK(why_refused(own.made("known", 0604)).find("(mode 0604)") != std::string::npos);
  CHECK(why_refused(own.made("known", 0620)).find("(mode 0620)") != std::string::npos);
  CHECK(why_refused(own.made("\n", 0600)).find("it is empty") != std::string::npos);
  CHECK(why_refused(own.made(std::string(128, 'x'), 0600)).find("at most 127 bytes") !=
        std::string::npos);
  CHECK(why_refused(own.made(std::string(9999, 'x'), 0600)).find("at most 127 bytes") !=
        std::string::npos);
  CHECK(why_refused(own.folder / "missing").find("No such file") != std::string::npos);
  CHECK(why_refused(own.folder).find("no regular file") != std::string::npos);
}

TEST_SUITE_END();
