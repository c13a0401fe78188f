#include "launcher.hpp"

#include <fmt/format.h>
#include <netdb.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <stdexcept>

namespace mwbench {

namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) {
    throw std::runtime_error(
        fmt::format("started by a launcher, but {} is not set (--no-launcher starts its "
                    "own processes)",
                    name));
  }
  return value;
}

int number(const char* name, int least, int most) {
  const std::string_view text = variable(name);
  int value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least ||
      value > most) {
    throw std::runtime_error(
        fmt::format("{}={} is not a number from {} to {}", name, text, least, most));
  }
  return value;
}

mw::socket_address store_address() {
  const std::string host(variable("MASTER_ADDR"));
  const std::string port = std::to_string(number("MASTER_PORT", 1, 65535));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each; each = each->ai_next) {
    const auto address = mw::socket_address::from_native(each->ai_addr, each->ai_addrlen);
    if (address) return *address;
  }
  throw std::runtime_error(fmt::format("MASTER_ADDR={}: {}", host,
                                       error ? ::gai_strerror(error) : "no address"));
}

}  // namespace

bool ask_launcher(common_options& common) {
  if (!std::getenv("RANK") && !std::getenv("WORLD_SIZE")) return false;
  launch found;
  found.size = number("WORLD_SIZE", 1, mw::world_view::largest_size);
  found.rank = number("RANK", 0, found.size - 1);
  found.store = store_address();
  common.launch = found;
  // torchrun's agent serves a TCPStore at that address.
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  const bool has_store = agent && std::string_view(agent) == "True";
  if (found.rank > 0 || has_store) common.store = found.store.text();
  if (found.rank > 0) common.role = std::to_string(found.rank);
  return true;
}

void refuse_launcher(const common_options& common, std::string_view question) {
  if (!common.has_launcher()) return;
  throw std::runtime_error(
      fmt::format("{} starts its processes itself: ask it without a launcher, or with "
                  "--no-launcher (RANK and WORLD_SIZE are set)",
                  question));
}

int members_of(const common_options& common, std::string_view question, int wanted,
               bool was_said) {
  if (!common.has_launcher() || wanted == common.launch.size) return wanted;
  if (!was_said) return common.launch.size;
  throw std::runtime_error(
      fmt::format("{} is asked of {} processes, the launcher has "
                  "started {}",
                  question, wanted, common.launch.size));
}

}  // namespace mwbench
