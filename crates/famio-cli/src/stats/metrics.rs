//! `famio metrics`: the numbers of `famio stats` for Prometheus and compatible readers, by HTTP or as a file.

use super::now::{File, Now};
use super::runs::Run;
use super::times::Quantiles;
use crate::failure::{FAILED, Failure};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// Export the numbers of `famio stats` to Prometheus
///
/// Writes OpenMetrics text: by HTTP, into a file (for the text file collector of node_exporter), or to stdout. Each
/// request collects the numbers anew, takes no lock and ends no lease. Run it as root to see the processes of all
/// users.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Answer requests for /metrics at this address and port, until a signal ends it. A port alone means 127.0.0.1;
    /// port 0 any free port
    #[arg(long, value_name = "ADDR:PORT", value_parser = addresses)]
    listen: Option<Addresses>,
    /// Write the file once, in one step, and end; a device or FIFO gets the text
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    file: Option<PathBuf>,
}

/// The addresses of a name.
#[derive(Clone, Debug)]
struct Addresses(Vec<SocketAddr>);

/// `127.0.0.1:9464`, `[::1]:9464`, `localhost:9464`, `:9464` or `9464`.
fn addresses(text: &str) -> Result<Addresses, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(Addresses(vec![SocketAddr::from(([127, 0, 0, 1], port))]));
    }
    match text.to_socket_addrs() {
        Ok(found) if found.len() > 0 => Ok(Addresses(found.collect())),
        Err(error) if text.contains(':') => Err(format!("{error}; for example 127.0.0.1:9464")),
        _ => Err("not an address with a port; for example 127.0.0.1:9464".into()),
    }
}

const HELP: &str = "\
Everybody who can reach the address sees the paths of files. There is no password: listen on 127.0.0.1, or behind a proxy \
that asks for one.

Examples:
  famio metrics --listen 127.0.0.1:9464
  famio metrics --listen localhost:9464
  famio metrics --file /var/lib/node_exporter/famio.prom";

/// The content type of responses.
const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves, writes or prints.
pub fn main(args: Args) -> Result<i32, Failure> {
    match (&args.listen, &args.file) {
        (Some(addresses), _) => serve(addresses),
        (None, Some(path)) => {
            let failed = |error| Failure::new(FAILED, format!("{}: can't be written: {error}", path.display()));
            write(path, &encode(Now::look())?).map_err(failed)?;
            Ok(0)
        }
        (None, None) => {
            print!("{}", encode(Now::look())?);
            Ok(0)
        }
    }
}

fn serve(Addresses(addresses): &Addresses) -> Result<i32, Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        let first = addresses.first().map(ToString::to_string).unwrap_or_default();
        Failure::new(FAILED, format!("{first}: can't be listened at: {error}"))
    };
    let server = tiny_http::Server::http(&addresses[..]).map_err(|error| cannot(&error))?;
    if let Some(address) = server.server_addr().to_ip() {
        eprintln!("famio: http://{address}/metrics");
    }
    let header = |name: &str, value: &str| tiny_http::Header::from_bytes(name, value).ok();
    for request in server.incoming_requests() {
        let is_read = matches!(request.method(), tiny_http::Method::Get | tiny_http::Method::Head);
        let path = request.url().split('?').next().unwrap_or_default();
        let (status, kind, text) = match path {
            _ if !is_read => (405, "text/plain", "only GET\n".into()),
            "/metrics" => match encode(Now::look()) {
                Ok(text) => (200, TEXT, text),
                Err(failure) => (500, "text/plain", failure.message),
            },
            _ => (404, "text/plain", "see /metrics\n".into()),
        };
        let mut response =
            tiny_http::Response::from_string(text).with_status_code(status).with_chunked_threshold(usize::MAX);
        response.add_header(header("Content-Type", kind).ok_or_else(|| cannot(&"a bad header"))?);
        let _ = request.respond(response); // the client has gone
    }
    Ok(0)
}

/// Replaces the file atomically, so that a reader finds the old or the new text. A device, FIFO or symbolic link of
/// that name is written to, and stays what it is.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return std::fs::File::options().write(true).open(path)?.write_all(text.as_bytes());
    }
    let path = &crate::text::whole(path);
    let mut name = path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?.to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    let new = path.with_file_name(name);
    let written = (|| {
        let mut file = std::fs::File::options().write(true).create_new(true).open(&new)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&new, path)
    })();
    written.inspect_err(|_| drop(std::fs::remove_file(&new)))
}

fn encode(now: Now) -> Result<String, Failure> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(now));
    let mut all = String::new();
    text::encode(&mut all, &registry).map_err(|error| Failure::new(FAILED, error))?;
    Ok(all)
}

type Labels<'a> = [(&'static str, &'a str); 2];
type Encoded = Result<(), std::fmt::Error>;

/// A number of a file: its name, its meaning, and how to get it.
type Number = (&'static str, &'static str, Option<Unit>, fn(&File) -> u64);

type TimesOf = fn(&File) -> &Quantiles;
type CountOf = fn(&Run) -> u64;

fn gauges() -> [Number; 6] {
    [
        ("famio_processes", "Processes that have the file open", None, |file| file.processes.len() as u64),
        ("famio_lock_waiters", "Of those, how many wait for a lock", None, |file| file.waiting as u64),
        ("famio_open", "Bytes written since the last SYNC", Some(Unit::Bytes), |file| file.open_bytes),
        ("famio_journal_size", "Size of the journal", Some(Unit::Bytes), |file| file.journal_size),
        ("famio_write_lease", "1: the processes have the write lease", None, |file| file.lease.into()),
        ("famio_attached", "1: the file has a journal", None, |file| (file.kind.is_some() && file.is_counted()).into()),
    ]
}

/// Unknown for growing files.
fn counted_gauges() -> [Number; 2] {
    [
        ("famio_epoch", "The last commit", None, |file| file.epoch),
        ("famio_open_writes", "Writes since the last SYNC", None, |file| file.open_writes),
    ]
}

fn counters() -> [Number; 9] {
    [
        ("famio_syncs", "SYNCs that committed something", None, |file| file.syncs),
        ("famio_failed_syncs", "SYNCs that failed", None, |file| file.failed_syncs),
        ("famio_writes", "Writes up to the last SYNC", None, |file| file.writes),
        ("famio_reads", "Reads up to the last SYNC", None, |file| file.reads),
        ("famio_written", "Bytes of the writes", Some(Unit::Bytes), |file| file.written_bytes),
        ("famio_journal", "Bytes that went to the journal", Some(Unit::Bytes), |file| file.journal_bytes),
        ("famio_file", "Bytes that went to the file", Some(Unit::Bytes), |file| file.file_bytes),
        ("famio_write_backs", "Blocks that went from the journal to the file", None, |file| file.write_backs),
        ("famio_hand_overs", "Changes of the process that may change the file", None, |file| file.hand_overs.into()),
    ]
}

impl Collector for Now {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let counted = || self.files.iter().filter(|file| file.is_counted());
        let gauges =
            gauges().map(|gauge| (gauge, true)).into_iter().chain(counted_gauges().map(|gauge| (gauge, false)));
        for ((name, help, unit, value), of_all) in gauges {
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            for file in self.files.iter().filter(|file| of_all || file.is_counted()) {
                ConstGauge::new(value(file) as i64).encode(metric.encode_family(&labels(file))?)?;
            }
        }
        for (name, help, unit, value) in counters() {
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            for file in counted() {
                ConstCounter::new(value(file)).encode(metric.encode_family(&labels(file))?)?;
            }
        }
        let times: [(_, _, TimesOf); 2] = [
            ("famio_sync", "How long SYNCs took: in place one of 16, records all", |file| &file.sync_nanoseconds),
            ("famio_write", "How long writes took: one of 256", |file| &file.write_nanoseconds),
        ];
        for (name, help, of) in times {
            let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
            for file in counted() {
                let times = of(file);
                let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
                let buckets = bounds().map(|bound| {
                    let calls =
                        times.buckets.iter().find(|bucket| bucket.below == bound).map_or(0, |bucket| bucket.calls);
                    (bound.map_or(f64::INFINITY, seconds), calls)
                });
                let buckets: Vec<(f64, u64)> = buckets.collect();
                let labels = labels(file);
                let mut metric = metric.encode_family(&labels)?;
                metric.encode_histogram::<Labels<'_>>(seconds(times.sum), times.measured, &buckets, None)?;
            }
        }
        let of_runs: [(_, _, CountOf); 2] = [
            ("famio_demotions", "Files of a run that became ordinary files", |run| run.demotions),
            ("famio_conflicts", "Opens that failed since file and journal contradict each other, of a run", |run| {
                run.conflicts
            }),
        ];
        for (name, help, value) in of_runs {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for run in &self.runs {
                ConstCounter::new(value(run)).encode(metric.encode_family(&[("run", run.pid.to_string())])?)?;
            }
        }
        Ok(())
    }
}

fn labels(file: &File) -> Labels<'_> {
    [("file", file.file.as_deref().unwrap_or_default()), ("id", &file.id)]
}

/// The bounds of all buckets, the same at each scrape.
fn bounds() -> impl Iterator<Item = Option<u64>> {
    famio::recovery::bounds_of_times()
}

#[cfg(test)]
mod tests {
    use super::super::times::Bucket;
    use super::*;

    #[test]
    fn addresses_have_many_forms() {
        let port = |text| addresses(text).map(|Addresses(all)| (all[0].port(), all[0].ip().is_loopback()));
        for text in ["127.0.0.1:9464", "[::1]:9464", "localhost:9464", ":9464", "9464"] {
            assert_eq!(port(text), Ok((9464, true)), "{text}");
        }
        for text in ["localhost", "", "1.2.3.4", "localhost:high", "99999"] {
            assert!(port(text).unwrap_err().contains("for example 127.0.0.1:9464"), "{text}");
        }
    }

    #[test]
    fn names_of_files_are_no_syntax_and_buckets_add_up() {
        let file = File {
            file: Some("/a\"b\\c\nd".into()),
            id: "1:2".into(),
            syncs: 7,
            sync_nanoseconds: Quantiles {
                measured: 3,
                sum: 3000,
                buckets: vec![Bucket { below: Some(1024), calls: 2 }, Bucket { below: None, calls: 1 }],
            },
            ..File::default()
        };
        let text = encode(Now { files: vec![file], runs: Vec::new() }).unwrap();
        let label = r#"file="/a\"b\\c\nd",id="1:2""#;
        assert!(text.contains(&format!("famio_syncs_total{{{label}}} 7\n")), "{text}");
        assert!(text.contains(&format!("famio_sync_seconds_bucket{{le=\"0.000001024\",{label}}} 2\n")), "{text}");
        assert!(text.contains(&format!("famio_sync_seconds_bucket{{le=\"+Inf\",{label}}} 3\n")), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
