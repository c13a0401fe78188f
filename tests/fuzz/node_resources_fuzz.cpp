// What a node has, as its agent tells it or a file declares it: whatever the text, it is
// refused, or what was read is within its bounds and reads back equal.
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "input.hpp"
#include "manyworlds/mpmd/node_resources.hpp"

using namespace manyworlds;
using fuzzing::must;

namespace {

void look_at(const node_resources& node) {
  must(!node.name.empty() && node.name.find_first_of(" ,\n") == std::string::npos);
  must(node.gpus.size() <= 64 && node.labels.size() <= 64);
  must(node.cpu_count() <= 4096);
  must(!node.text().empty());
  const std::string printed = node.to_json();
  const node_resources again = node_resources::from_json(printed);
  must(again == node);
  must(again.to_json() == printed);
  // All that it says may be declared, too.
  node_resources declared;
  declared.declare(printed);
  must(declared == node);
}

/// Refuses by one sentence that names the field.
void check_refusal(const std::invalid_argument& e) {
  const std::string_view said = e.what();
  must(said.starts_with("resources of a node: "));
  must(said.find('\n') == std::string_view::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  node_resources node;
  try {
    node = node_resources::from_json(text);
  } catch (const std::invalid_argument& e) {
    check_refusal(e);
    node = {};
  }
  if (!node.name.empty()) look_at(node);
  // A declaration has a part of it, over what was found.
  node_resources found;
  found.name = "found";
  found.cpus = {{0, {0, 1}}};
  const node_resources before = found;
  try {
    found.declare(text);
  } catch (const std::invalid_argument& e) {
    check_refusal(e);
    must(found == before);
    return 0;
  }
  look_at(found);
  return 0;
}
