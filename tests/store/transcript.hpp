// What PyTorch's clients and servers have said to each other, as torch_peer.py has
// written it.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace manyworlds_tests {

/// One connection's next words.
struct transcript_step {
  enum class kind : char { connects = 'c', asks = '>', is_told = '<' };

  kind what = kind::connects;
  char connection = 'a';
  std::string bytes;
};

/// What was said during one operation of one version, in its order.
struct transcript {
  std::string name;
  std::vector<transcript_step> steps;

  /// The bytes of all clients.
  [[nodiscard]] std::size_t asked_bytes() const {
    std::size_t sum = 0;
    for (const transcript_step& step : steps) {
      if (step.what == transcript_step::kind::asks) sum += step.bytes.size();
    }
    return sum;
  }
};

/// Reads the bytes of a line "a> 00 0c  |..|".
inline std::string bytes_of_line(const std::string& line) {
  std::istringstream words(line.substr(2, line.rfind("  |") - 2));
  std::string bytes;
  for (unsigned byte = 0; words >> std::hex >> byte;) bytes += static_cast<char>(byte);
  return bytes;
}

/// Reads all transcripts of a version, such as "2.6".
inline std::vector<transcript> transcripts_of(const std::string& version) {
  std::ifstream file(STORE_TRANSCRIPTS "/torch-" + version + ".txt");
  std::vector<transcript> all;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("== ")) {
      all.push_back({line.substr(3), {}});
      continue;
    }
    REQUIRE(!all.empty());
    std::vector<transcript_step>& steps = all.back().steps;
    using kind = transcript_step::kind;
    const kind what = line[1] == ' ' ? kind::connects : static_cast<kind>(line[1]);
    const bool goes_on = !steps.empty() && what != kind::connects &&
                         steps.back().what == what && steps.back().connection == line[0];
    if (!goes_on) steps.push_back({what, line[0], {}});
    if (what != kind::connects) steps.back().bytes += bytes_of_line(line);
  }
  REQUIRE(!all.empty());
  return all;
}

}  // namespace manyworlds_tests
