#include "mwrun/meeting_of_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "launch/own_address.hpp"
#include "launch/variable_reader.hpp"
#include "link/secret_file.hpp"
#include "manyworlds/launch/launch_error.hpp"

namespace mwrun {

namespace {

constexpr std::uint16_t default_static_port = 29500;
constexpr std::uint16_t default_tcp_port = 29400;
constexpr std::uint16_t default_etcd_port = 2379;

/// Returns our backend for a name of torchrun's or ours.
std::string backend_of(const command_line& line) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> known = {
      {{"static", "manual"},
       {"c10d", "tcp"},
       {"etcd-v2", "etcd"},
       {"standalone", "standalone"},
       {"manual", "manual"},
       {"tcp", "tcp"},
       {"etcd", "etcd"},
       {"file", "file"}}};
  const std::string& said = line.rdzv_backend;
  for (const auto& [name, ours] : known) {
    if (said == name) return std::string(ours);
  }
  throw usage_error(fmt::format(
      "--rdzv-backend: \"{}\" was given: expected static, c10d, etcd, etcd-v2, "
      "standalone, manual, tcp or file",
      said));
}

std::string with_port(const std::string& endpoint, std::uint16_t port) {
  if (mw::detail::port_of(endpoint)) return endpoint;
  return mw::detail::endpoint_of(endpoint, port);
}

std::string endpoint_of(const command_line& line, std::string_view backend) {
  const bool has_endpoint = !line.rdzv_endpoint.empty();
  if (backend == "manual" || backend == "standalone") {
    if (has_endpoint) return with_port(line.rdzv_endpoint, default_static_port);
    return mw::detail::endpoint_of(
        line.master_addr,
        static_cast<std::uint16_t>(line.master_port.value_or(default_static_port)));
  }
  if (!has_endpoint) {
    throw usage_error(fmt::format("--rdzv-endpoint: it is missing, and {} needs it",
                                  line.rdzv_backend));
  }
  if (backend == "tcp") return with_port(line.rdzv_endpoint, default_tcp_port);
  const bool is_list = line.rdzv_endpoint.find_first_of(",/") != std::string::npos;
  if (backend == "etcd" && !is_list)
    return with_port(line.rdzv_endpoint, default_etcd_port);
  return line.rdzv_endpoint;
}

mw::duration seconds_of(const std::pair<const std::string, std::string>& pair) {
  const auto given = seconds_of_text(pair.second);
  if (!given || *given <= mw::duration::zero()) {
    throw usage_error(fmt::format("--rdzv-conf: \"{}={}\" was given: expected seconds",
                                  pair.first, pair.second));
  }
  return *given;
}

/// Reads what torchrun's backends are configured by. What concerns their stores alone is
/// taken, and changes nothing.
void read_limits(const command_line& line, mw::rendezvous_limits& limits) {
  limits.silence = line.agent_lost_after;
  for (const auto& pair : line.rdzv_conf) {
    const std::string& name = pair.first;
    if (name == "join_timeout" || name == "timeout") {
      limits.join = seconds_of(pair);
    } else if (name == "last_call_timeout" || name == "last_call") {
      limits.last_call = seconds_of(pair);
    } else if (name == "close_timeout") {
      limits.close = seconds_of(pair);
    }
  }
  const auto interval = line.rdzv_conf.find("keep_alive_interval");
  const auto attempts = line.rdzv_conf.find("keep_alive_max_attempt");
  if (interval == line.rdzv_conf.end() && attempts == line.rdzv_conf.end()) return;
  // torchrun: a node is lost after a number of silent intervals, 3 of 5 s unless set.
  constexpr double usual_interval = 5;
  constexpr double usual_attempts = 3;
  const auto number_of = [&](auto at, double usual) {
    return at == line.rdzv_conf.end()
               ? usual
               : std::chrono::duration<double>(seconds_of(*at)).count();
  };
  // A product that is longer would not fit.
  constexpr double longest = 1e9;
  const double silence = std::min(
      longest, number_of(interval, usual_interval) * number_of(attempts, usual_attempts));
  limits.silence =
      std::chrono::duration_cast<mw::duration>(std::chrono::duration<double>(silence));
}

/// Returns the "host:port" of an endpoint; of etcd's list, that of the first.
std::string first_host(std::string endpoint) {
  endpoint.resize(std::min(endpoint.find(','), endpoint.size()));
  const std::size_t scheme = endpoint.find("://");
  if (scheme != std::string::npos) endpoint.erase(0, scheme + 3);
  endpoint.resize(std::min(endpoint.find('/'), endpoint.size()));
  return endpoint;
}

/// Returns this node's address as the others reach it: the one that was given, or the one
/// that leads to where they meet.
mw::socket_address own_address_of(const command_line& line,
                                  const mw::rendezvous_options& meeting) {
  mw::launch_context way;
  way.size = 2;
  way.store = meeting.backend == "file" ? "192.0.2.1:1" : first_host(meeting.endpoint);
  way.interface = line.local_addr;
  try {
    return mw::detail::own_address(way);
  } catch (const mw::launch_error& e) {
    if (line.local_addr.empty()) {
      throw usage_error(
          fmt::format("--local-addr: it is missing, and no way leads to {}", way.store));
    }
  }
  try {
    way.interface.clear();
    return mw::detail::look_up(way, mw::detail::endpoint_of(line.local_addr, 0)).at(0);
  } catch (const mw::launch_error& e) {
    throw usage_error(fmt::format(
        "--local-addr: \"{}\" is no address, interface or name of this machine",
        line.local_addr));
  }
}

mw::secret_text secret_of(const command_line& line) {
  if (line.secret_file.empty()) return {};
  try {
    return mw::detail::read_secret_file(line.secret_file);
  } catch (const std::runtime_error& e) {
    throw usage_error(fmt::format("--secret-file: {}", e.what()));
  }
}

}  // namespace

mw::runtime_options meet(const command_line& line, mw::launch_options& job) {
  mw::runtime_options how;
  // Workers report a few times a second, and the processors are for their use.
  how.spin = mw::duration::zero();
  mw::rendezvous_options& meeting = job.meeting;
  meeting.limits.min_nodes = static_cast<std::size_t>(line.min_nodes);
  meeting.limits.max_nodes = static_cast<std::size_t>(line.max_nodes);
  meeting.backend = line.standalone ? "standalone" : backend_of(line);
  if (line.spares) meeting.limits.spares = static_cast<std::size_t>(*line.spares);
  read_limits(line, meeting.limits);
  const bool is_alone = line.standalone || line.max_nodes == 1;
  const bool meets_alone =
      is_alone && (meeting.backend == "standalone" || meeting.backend == "manual");
  meeting.secret = secret_of(line);
  if (meets_alone) {
    meeting.backend = "standalone";
    meeting.limits.min_nodes = meeting.limits.max_nodes = 1;
    return how;
  }
  if (meeting.backend == "manual" && line.min_nodes != line.max_nodes)
    throw usage_error("--nnodes: a range was given: a static run has fixed nodes");
  meeting.endpoint = endpoint_of(line, meeting.backend);
  meeting.node_rank = line.node_rank;
  meeting.insecure = line.insecure;
  const mw::socket_address own = own_address_of(line, meeting);
  job.host = mw::detail::host_of(own.text());
  if (!own.is_loopback() && meeting.secret.empty() && !line.insecure) {
    throw usage_error(fmt::format(
        "--secret-file: it is missing, since the nodes reach this one at {} (or "
        "--insecure, if the network is trusted)",
        job.host));
  }
  // Workers of this library reach each other as their agents do.
  if (!job.inherited.contains("MANYWORLDS_INTERFACE"))
    job.variables["MANYWORLDS_INTERFACE"] = job.host;
  if (line.insecure) job.variables["MANYWORLDS_INSECURE"] = "1";
  how.listen = own.with_port(0).text();
  how.secret = meeting.secret;
  how.insecure = line.insecure;
  return how;
}

}  // namespace mwrun
