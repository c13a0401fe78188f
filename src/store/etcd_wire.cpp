#include "store/etcd_features.hpp"

#if MANYWORLDS_HAS_ETCD

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "store/etcd_wire.hpp"

namespace manyworlds::inline v0::detail::etcd {

namespace {

using nlohmann::json;

constexpr std::string_view base64_digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> base64_values() {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < base64_digits.size(); ++i)
    values[static_cast<unsigned char>(base64_digits[i])] = static_cast<std::int8_t>(i);
  return values;
}

json parsed_object(std::string_view text) {
  json object = json::parse(text, nullptr, false);
  if (!object.is_object()) throw bad_answer("it is no JSON object");
  return object;
}

/// Returns the member, or null if it is left out.
const json* member(const json& object, const char* name) {
  if (!object.is_object()) throw bad_answer("a part is no JSON object");
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

/// int64 come as strings, since JavaScript has no such numbers.
std::int64_t number_of(const json& object, const char* name) {
  const json* const value = member(object, name);
  if (!value) return 0;
  if (value->is_number_integer()) return value->get<std::int64_t>();
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    std::int64_t number = 0;
    const auto end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, number);
    if (read.ec == std::errc() && read.ptr == end) return number;
  }
  throw bad_answer(fmt::format("\"{}\" is no number", name));
}

bool flag_of(const json& object, const char* name) {
  const json* const value = member(object, name);
  if (!value) return false;
  if (value->is_boolean()) return value->get<bool>();
  throw bad_answer(fmt::format("\"{}\" is neither true nor false", name));
}

std::string text_of(const json& object, const char* name) {
  const json* const value = member(object, name);
  if (!value) return {};
  if (value->is_string()) return value->get<std::string>();
  throw bad_answer(fmt::format("\"{}\" is no text", name));
}

std::string bytes_of(const json& object, const char* name) {
  const json* const value = member(object, name);
  if (!value) return {};
  if (value->is_string()) {
    if (auto bytes = from_base64(value->get_ref<const std::string&>()))
      return std::move(*bytes);
  }
  throw bad_answer(fmt::format("\"{}\" is no base64", name));
}

const json& list_of(const json& object, const char* name) {
  static const json none = json::array();
  const json* const value = member(object, name);
  if (!value) return none;
  if (!value->is_array()) throw bad_answer(fmt::format("\"{}\" is no list", name));
  return *value;
}

std::int64_t revision_of(const json& object) {
  const json* const header = member(object, "header");
  return header ? number_of(*header, "revision") : 0;
}

etcd_entry entry_of(const json& object) {
  etcd_entry entry;
  entry.key = bytes_of(object, "key");
  entry.value = bytes_of(object, "value");
  entry.create_revision = number_of(object, "create_revision");
  entry.mod_revision = number_of(object, "mod_revision");
  entry.version = number_of(object, "version");
  entry.lease = number_of(object, "lease");
  return entry;
}

range_answer range_of(const json& object) {
  range_answer answer;
  answer.revision = revision_of(object);
  answer.count = number_of(object, "count");
  answer.has_more = flag_of(object, "more");
  for (const json& kv : list_of(object, "kvs")) answer.entries.push_back(entry_of(kv));
  return answer;
}

range_answer delete_of(const json& object) {
  range_answer answer;
  answer.revision = revision_of(object);
  answer.count = number_of(object, "deleted");
  for (const json& kv : list_of(object, "prev_kvs"))
    answer.entries.push_back(entry_of(kv));
  return answer;
}

/// A message of a stream is wrapped.
const json& result_of(const json& object) {
  if (const json* const error = member(object, "error")) {
    const std::string message = error->is_object() ? text_of(*error, "message") : "";
    throw bad_answer(message.empty() ? "it is an error without a message" : message);
  }
  const json* const result = member(object, "result");
  if (!result) throw bad_answer("a message has no result");
  return *result;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t part = std::min<std::size_t>(3, bytes.size() - i);
    unsigned word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (k < part ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += k <= part ? base64_digits[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  static constexpr std::array<std::int8_t, 256> values = base64_values();
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && !text.empty() && text.back() == '=') {
    text.remove_suffix(1);
    ++padding;
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  unsigned word = 0;
  unsigned bits = 0;
  for (const char c : text) {
    const std::int8_t value = values[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    word = word << 6 | static_cast<unsigned>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(word >> bits & 0xff);
  }
  return bytes;
}

std::string end_of_prefix(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  // A NUL byte stands for the end of all keys.
  if (prefix.empty()) return std::string(1, '\0');
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

/// Returns the first key of a range: etcd has no empty one.
std::string first_of_range(std::string_view key) {
  return key.empty() ? std::string(1, '\0') : std::string(key);
}

std::string range_body(const range_request& r) {
  std::string body = fmt::format(R"({{"key":"{}")", to_base64(first_of_range(r.key)));
  if (!r.end.empty()) body += fmt::format(R"(,"range_end":"{}")", to_base64(r.end));
  if (r.limit > 0) body += fmt::format(R"(,"limit":"{}")", r.limit);
  if (r.revision > 0) body += fmt::format(R"(,"revision":"{}")", r.revision);
  if (r.keys_only) body += R"(,"keys_only":true)";
  if (r.count_only) body += R"(,"count_only":true)";
  if (r.oldest_first) body += R"(,"sort_order":"ASCEND","sort_target":"CREATE")";
  return body += '}';
}

std::string put_body(std::string_view key, std::string_view value, std::int64_t lease) {
  std::string body =
      fmt::format(R"({{"key":"{}","value":"{}")", to_base64(key), to_base64(value));
  if (lease != 0) body += fmt::format(R"(,"lease":"{}")", lease);
  return body += '}';
}

std::string delete_body(std::string_view key) {
  return fmt::format(R"({{"key":"{}","prev_kv":true}})", to_base64(key));
}

std::string compare_body(etcd_target target, etcd_relation relation, std::string_view key,
                         std::int64_t number, std::string_view value) {
  static constexpr const char* relations[] = {"EQUAL", "NOT_EQUAL", "GREATER", "LESS"};
  static constexpr const char* targets[] = {"VALUE", "CREATE", "MOD", "VERSION", "LEASE"};
  static constexpr const char* fields[] = {"value", "create_revision", "mod_revision",
                                           "version", "lease"};
  const auto which = static_cast<std::size_t>(target);
  return fmt::format(
      R"({{"key":"{}","target":"{}","result":"{}","{}":"{}"}})", to_base64(key),
      targets[which], relations[static_cast<std::size_t>(relation)], fields[which],
      target == etcd_target::value ? to_base64(value) : std::to_string(number));
}

std::string watch_body(std::string_view key, std::string_view end,
                       std::int64_t revision) {
  std::string body =
      fmt::format(R"({{"create_request":{{"key":"{}")", to_base64(first_of_range(key)));
  if (!end.empty()) body += fmt::format(R"(,"range_end":"{}")", to_base64(end));
  if (revision > 0) body += fmt::format(R"(,"start_revision":"{}")", revision);
  return body += R"(,"progress_notify":true}})";
}

std::string user_body(const std::string& user, const std::string& password) {
  // Replaced, if they are no UTF-8: etcd refuses them then.
  const json body = {{"name", user}, {"password", password}};
  return body.dump(-1, ' ', true, json::error_handler_t::replace);
}

void transaction_body::add(std::string& list, const std::string& body) {
  if (!list.empty()) list += ',';
  list += body;
}

void transaction_body::add_step(std::string& list, const char* kind,
                                const std::string& body) {
  add(list, fmt::format(R"({{"{}":{}}})", kind, body));
}

std::string transaction_body::text() const {
  return fmt::format(R"({{"compare":[{}],"success":[{}],"failure":[{}]}})", compares,
                     thens, elses);
}

range_answer read_range(std::string_view text) { return range_of(parsed_object(text)); }
range_answer read_delete(std::string_view text) { return delete_of(parsed_object(text)); }

transaction_answer read_transaction(std::string_view text) {
  const json object = parsed_object(text);
  transaction_answer answer;
  answer.revision = revision_of(object);
  answer.succeeded = flag_of(object, "succeeded");
  for (const json& step : list_of(object, "responses")) {
    if (const json* const range = member(step, "response_range")) {
      answer.steps.push_back(range_of(*range));
    } else if (const json* const erased = member(step, "response_delete_range")) {
      answer.steps.push_back(delete_of(*erased));
    } else if (member(step, "response_put")) {
      answer.steps.emplace_back();
    } else {
      throw bad_answer("a step of a transaction has no response");
    }
  }
  return answer;
}

watch_answer read_watch(std::string_view line) {
  const json object = parsed_object(line);
  const json& result = result_of(object);
  watch_answer answer;
  answer.revision = revision_of(result);
  answer.is_created = flag_of(result, "created");
  answer.is_cancelled = flag_of(result, "canceled");
  answer.compact_revision = number_of(result, "compact_revision");
  answer.reason = text_of(result, "cancel_reason");
  for (const json& event : list_of(result, "events")) {
    etcd_change change;
    const std::string type = text_of(event, "type");
    if (type != "" && type != "PUT" && type != "DELETE")
      throw bad_answer("an event is neither PUT nor DELETE");
    change.is_erased = type == "DELETE";
    const json* const kv = member(event, "kv");
    if (!kv) throw bad_answer("an event has no key");
    change.entry = entry_of(*kv);
    answer.changes.push_back(std::move(change));
  }
  return answer;
}

lease_answer read_lease(std::string_view text) {
  const json object = parsed_object(text);
  lease_answer answer{number_of(object, "ID"), number_of(object, "TTL")};
  if (answer.id == 0) throw bad_answer("a lease has no ID");
  if (answer.seconds < 0) throw bad_answer("a lease has a negative time");
  return answer;
}

lease_answer read_keep_alive(std::string_view text) {
  const json object = parsed_object(text);
  const json& result = result_of(object);
  lease_answer answer{number_of(result, "ID"), number_of(result, "TTL")};
  // etcd says -1 of a lease that it does not know.
  answer.seconds = std::max<std::int64_t>(answer.seconds, 0);
  return answer;
}

std::string read_token(std::string_view text) {
  std::string token = text_of(parsed_object(text), "token");
  // It goes into a header line.
  for (const char c : token) {
    if (c < '!' || c > '~') throw bad_answer("a token is no word");
  }
  if (token.empty()) throw bad_answer("it gives no token");
  return token;
}

std::optional<std::string> read_version(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto version = object.find("etcdserver");
  if (version == object.end() || !version->is_string()) return std::nullopt;
  return version->get<std::string>();
}

error_answer read_error(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  error_answer answer;
  if (!object.is_object()) return answer;
  // A stream wraps it.
  const auto inner = object.find("error");
  const json& error = inner != object.end() && inner->is_object() ? *inner : object;
  for (const char* const name : {"error", "message"}) {
    const auto message = error.find(name);
    if (message != error.end() && message->is_string())
      answer.message = message->get<std::string>();
  }
  for (const char* const name : {"grpc_code", "code"}) {
    const auto code = error.find(name);
    if (code != error.end() && code->is_number_integer())
      answer.code = code->get<std::int64_t>();
  }
  return answer;
}

}  // namespace manyworlds::inline v0::detail::etcd

#endif  // MANYWORLDS_HAS_ETCD
