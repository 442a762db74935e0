//! Asking a service: one that is reached by its URL, or the store of this machine.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use belljar::{Seconds, native_engine};
use belljar_server::client::{Client, ClientError};
use belljar_server::service::Service;
use belljar_server::store::Place;

use super::args::ServiceArgs;
use super::commands::serve::of_store;
use super::config::Config;
use super::problem::Problem;
use super::settings;

/// Does something with a service.
pub(crate) fn with_service<T>(
    args: &ServiceArgs,
    work: impl AsyncFnOnce(Client) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::engine(format!("cannot start an asynchronous runtime: {error}")))?;
    runtime.block_on(async {
        let (client, local) = connect(args).await?;
        let done = work(client).await;
        if let Some(service) = local {
            service.store().close().await;
        }
        done
    })
}

async fn connect(args: &ServiceArgs) -> Result<(Client, Option<Arc<Service>>), Problem> {
    let config = Config::load(args.config.as_deref())?;
    // A store that was named is the one that is meant.
    let url = match &args.store {
        Some(_) => None,
        None => config.get("url", args.url.as_deref()),
    };
    if let Some(url) = url {
        let key = config.get("key", args.key.as_deref());
        let client = Client::remote(&url.text, key.as_ref().map(|key| key.text.as_str()))?;
        return Ok((client, None));
    }
    let place = settings::store(config.get("store", args.store.as_deref()))?;
    if let Place::Sqlite(path) = &place
        && !path.exists()
    {
        let message = format!("there is no store at {}", path.display());
        let hint = "start `belljar serve` once, or name a service with --url or a store with --store";
        return Err(Problem::usage(message).hint(hint));
    }
    let service = Service::beside(native_engine(), place)
        .await
        .map_err(|error| of_store(&error))?;
    Ok((Client::local(Arc::clone(&service)), Some(service)))
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        let problem = Self::new(error.kind(), error.to_string());
        match error.hint() {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

/// A path with a query, of what is there.
pub(crate) fn with_query(path: &str, query: &[(&str, Option<String>)]) -> String {
    let mut text = path.to_owned();
    let given = query
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    for (turn, (name, value)) in given.enumerate() {
        text.push(if turn == 0 { '?' } else { '&' });
        text += name;
        text.push('=');
        text += &escaped(value);
    }
    text
}

/// Text as part of a URL.
pub(crate) fn escaped(text: &str) -> String {
    text.bytes()
        .map(
            |byte| match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                true => char::from(byte).to_string(),
                false => format!("%{byte:02X}"),
            },
        )
        .collect()
}

/// Seconds since the epoch, so long ago.
pub(crate) fn ago(option: &str, text: &str) -> Result<f64, Problem> {
    Ok(now() - duration(option, text)?.get())
}

/// A length of time that was typed.
pub(crate) fn duration(option: &str, text: &str) -> Result<Seconds, Problem> {
    text.parse().map_err(|error| {
        Problem::usage(format!("{option}: {error}")).hint(format!("for example {option} 24h"))
    })
}

pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// A time as people read it, in UTC.
pub(crate) fn shown_time(seconds: f64) -> String {
    // Not after the year 9999, whatever somebody says.
    let whole = seconds.clamp(0.0, 253_402_300_799.0) as i64;
    let (mut days, rest) = (whole / 86_400, whole % 86_400);
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (day, hour, minute, second) = (days + 1, rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(shown_time(0.0), "1970-01-01 00:00:00");
        assert_eq!(shown_time(951_782_399.9), "2000-02-28 23:59:59");
        assert_eq!(shown_time(951_782_400.0), "2000-02-29 00:00:00");
        assert_eq!(shown_time(1_709_251_200.0), "2024-03-01 00:00:00");
        assert_eq!(shown_time(4_102_444_799.0), "2099-12-31 23:59:59");
        assert_eq!(shown_time(1e300), "9999-12-31 23:59:59");
    }

    #[test]
    fn a_query_holds_anything() {
        let query = [
            ("a", Some("x y&z".to_owned())),
            ("b", None),
            ("c", Some("ä".to_owned())),
        ];
        assert_eq!(with_query("/p", &query), "/p?a=x%20y%26z&c=%C3%A4");
        assert_eq!(with_query("/p", &[]), "/p");
    }
}
