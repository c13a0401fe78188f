// What masters, agents and workloads of a job say, and the heads of calls between its
// roles: whatever the text, it is refused, or what was read prints and reads back equal.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "input.hpp"
#include "mpmd/agent_words.hpp"
#include "mpmd/call_head.hpp"

using namespace manyworlds;
using detail::agent_wire::word_kind;
using fuzzing::must;

namespace {

void read_word(word_kind kind, std::string_view text) {
  detail::agent_word word;
  try {
    word = detail::agent_word_from(kind, text);
  } catch (const std::invalid_argument&) {
    return;
  }
  // Outside: an error of what follows is one of ours.
  must(kind >= word_kind::hello && kind <= word_kind::refusal);
  must(word.kind == kind);
  must(kind != word_kind::report || word.has.size() == 1);
  must(word.spec.drain >= duration::zero() && word.spec.grace >= duration::zero());
  const std::string printed = text_of(word);
  const detail::agent_word again = detail::agent_word_from(kind, printed);
  must(again == word);
  must(text_of(again) == printed);
}

void read_call(std::string_view request) {
  std::string_view rest = request;
  const auto head = detail::take_call_head(rest);
  if (!head) {
    must(rest.size() == request.size());
    return;
  }
  must(head->method.size() <= detail::longest_method);
  const std::string printed = bytes_of(*head);
  must(printed.size() + rest.size() == request.size());
  must(request == printed + std::string(rest));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  // Also the kinds on both sides of those that there are.
  const std::uint8_t kind = data[0] % 32;
  if (kind == 31) {
    read_call(text);
  } else {
    read_word(static_cast<word_kind>(kind), text);
  }
  return 0;
}
