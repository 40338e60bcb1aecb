//! The bucket that an address names, and the client for it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_store::{Address, AddressError, StoreError};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpConnector as _, HttpRequest, HttpRequestBody};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{ObjectStore, RetryConfig};

use crate::access::{Access, Environment};
use crate::error::refused;
use crate::http::Connector;
use crate::options::Options;

/// The longest pause between two looks at a bucket at rest.
const POLL_MAX: Duration = Duration::from_secs(60);

/// The provider of the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    S3,
    Google,
    Azure,
}

impl Provider {
    /// What the core calls this kind of store.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Provider::S3 => "s3",
            Provider::Google => "gs",
            Provider::Azure => "az",
        }
    }

    /// Why a bucket cannot have this name, by the rules of its provider:
    /// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>,
    /// <https://cloud.google.com/storage/docs/buckets#naming> and
    /// <https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata>.
    fn wrong_bucket(self, name: &str) -> Option<String> {
        let (length_max, more) = match self {
            Provider::S3 => (63, "-."),
            Provider::Google => (222, "-._"),
            Provider::Azure => (63, "-"),
        };
        let word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = [name.as_bytes().first(), name.as_bytes().last()];
        if !(3..=length_max).contains(&name.len()) {
            Some(format!("it must have 3 to {length_max} characters"))
        } else if !name.bytes().all(|byte| word(&byte) || more.as_bytes().contains(&byte)) {
            let more: Vec<String> = more.chars().map(|c| format!("`{c}`")).collect();
            Some(format!("it may have lower-case letters, digits and {}", more.join(" and ")))
        } else if !ends.into_iter().flatten().all(word) {
            Some("it must begin and end with a lower-case letter or a digit".to_owned())
        } else if name.contains("..") || (self == Provider::Azure && name.contains("--")) {
            Some("it must not have two dots or two hyphens in a row".to_owned())
        } else if name.parse::<std::net::Ipv4Addr>().is_ok() {
            Some("it must not look like an IP address".to_owned())
        } else {
            None
        }
    }
}

/// A bucket, a folder in it, and how to get there.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) provider: Provider,
    pub(crate) bucket: String,
    /// The folder that all namespaces are in.
    pub(crate) prefix: Path,
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    access: Access,
    connector: Connector,
}

impl Target {
    /// Reads an address, and reports all mistakes in it at once.
    pub(crate) fn parse(
        text: &str,
        options: &mut Options,
        environment: Environment,
    ) -> Result<Self, AddressError> {
        let mut address = Address::parse(text, |name| environment.get(name).map(str::to_owned))?;
        let provider = match address.scheme.as_str() {
            "s3" => Provider::S3,
            "gs" => Provider::Google,
            "az" => Provider::Azure,
            other => {
                address.wrong(format!("unknown object store `{other}` (use s3, gs or az)"));
                Provider::S3
            }
        };
        let bucket = match address.hosts.as_slice() {
            [host] if host.port.is_none() => host.name.clone(),
            _ => {
                address.wrong(format!("name one bucket: {}://bucket/prefix", provider.kind()));
                String::new()
            }
        };
        let prefix = Path::parse(&address.path).unwrap_or_else(|_| {
            address.wrong("invalid prefix: write names separated by slashes");
            Path::default()
        });
        if let Some(problem) = provider.wrong_bucket(&bucket).filter(|_| !bucket.is_empty()) {
            address.wrong(format!("invalid name of a bucket: {problem}"));
        }
        let yes_or_no = "true or false";
        let endpoint = address.param("endpoint");
        let region = address.param("region");
        let ca = address.param("ca");
        let via = address.param("via");
        let access = Access {
            user: address.user.clone(),
            secret: address.password.as_ref().map(|secret| secret.reveal().to_owned()),
            key_file: address.param("key_file"),
            allow_http: address.parsed("allow_http", yes_or_no).unwrap_or(false),
            virtual_hosted: address.parsed("virtual_hosted", yes_or_no).unwrap_or(false),
            unsigned: address.parsed("unsigned", yes_or_no).unwrap_or(false),
            environment,
        };
        if provider == Provider::Google && access.user.is_some() {
            address.wrong(
                "gs:// takes no credentials in the address: give the file of a service account with key_file",
            );
        } else if access.user.is_some() && access.secret.is_none() {
            address.wrong("the address has a key without its secret: add it, use password_file, or set LEASEHOLD_STORE_PASSWORD");
        }
        for problem in access.wrong(provider, &bucket, endpoint.as_deref(), region.as_deref()) {
            address.wrong(problem);
        }
        if endpoint.as_deref().is_some_and(|url| url.starts_with("http://")) && !access.allow_http {
            address.wrong("the endpoint is not encrypted: add allow_http=true if that is intended");
        }
        let spans = [
            ("poll", "a time such as 500ms, 6s or 1m, at most 1m", &mut options.poll_every),
            ("timeout", "a time such as 500ms, 6s or 1m", &mut options.request_within),
        ];
        for (name, wanted, span) in spans {
            if let Some(text) = address.param(name) {
                match parse_span(&text) {
                    Some(found) => *span = found,
                    None => address.wrong(format!("invalid value of `{name}`: write {wanted}")),
                }
            }
        }
        if options.poll_every > POLL_MAX {
            address.wrong(
                "`poll` is longer than 1m, and a free shard would wait that long: use 1m or less. A longer ttl \
                 saves more requests",
            );
        }
        options.poll_first = options.poll_first.min(options.poll_every);
        let connector = Connector::new(ca.as_deref(), options.request_within.min(Duration::from_secs(3)));
        let connector = connector.and_then(|connector| match &via {
            Some(place) => connector.via(place),
            None => Ok(connector),
        });
        let connector = match connector {
            Ok(connector) => Some(connector),
            Err(problem) => {
                address.wrong(problem);
                None
            }
        };
        address.finish()?;
        let connector = connector.expect("a problem was told of otherwise");
        Ok(Target { provider, bucket, prefix, endpoint, region, access, connector })
    }

    /// A client with connections of its own. It never tries anything twice by itself.
    pub(crate) fn client(&self) -> Result<Arc<dyn ObjectStore>, StoreError> {
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let built: object_store::Result<Arc<dyn ObjectStore>> = match self.provider {
            Provider::S3 => self.s3().with_retry(once).build().map(|store| Arc::new(store) as _),
            Provider::Google => self.google().with_retry(once).build().map(|store| Arc::new(store) as _),
            Provider::Azure => self.azure().with_retry(once).build().map(|store| Arc::new(store) as _),
        };
        built.map_err(|e| refused(format!("cannot open {}: {e}", self.place())))
    }

    /// A signed question to S3 that the client library has no call for, such as `lifecycle`; the status and the answer.
    pub(crate) async fn ask(&self, about: &str) -> Result<(u16, String), StoreError> {
        let fail = |what: &dyn std::fmt::Display| refused(format!("cannot query {}: {what}", self.place()));
        let builder = self.s3();
        let configured = |key| builder.get_config_value(&key);
        let region = configured(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = configured(AmazonS3ConfigKey::Endpoint)
            .unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let store = builder.build().map_err(|e| fail(&e))?;
        let credential =
            store.credentials().get_credential().await.map_err(|_| fail(&"there are no credentials"))?;
        let uri = format!("{}/{}?{about}=", endpoint.trim_end_matches('/'), self.bucket);
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = uri.parse().map_err(|_| fail(&"the endpoint is not a URL"))?;
        AwsAuthorizer::new(&credential, "s3", &region)
            .try_authorize(&mut request, None)
            .map_err(|e| fail(&e))?;
        let client = self.connector.connect(&object_store::ClientOptions::new()).map_err(|e| fail(&e))?;
        let answer = client.execute(request).await.map_err(|_| fail(&"no answer"))?;
        let status = answer.status().as_u16();
        let body = answer.into_body().bytes().await.map_err(|_| fail(&"the response broke off"))?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// The host and port that connections are made to.
    pub(crate) fn server(&self) -> Option<String> {
        let endpoint = match self.provider {
            Provider::S3 => {
                let builder = self.s3();
                let configured = |key| builder.get_config_value(&key);
                configured(AmazonS3ConfigKey::Endpoint).or_else(|| {
                    let region =
                        configured(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".to_owned());
                    Some(format!("https://s3.{region}.amazonaws.com"))
                })
            }
            Provider::Google => {
                Some(self.endpoint.clone().unwrap_or("https://storage.googleapis.com".to_owned()))
            }
            Provider::Azure => self
                .endpoint
                .clone()
                .or_else(|| Some(format!("https://{}.blob.core.windows.net", self.access.user.as_deref()?))),
        };
        let endpoint: hyper::Uri = endpoint?.parse().ok()?;
        let usual = if endpoint.scheme_str() == Some("http") { 80 } else { 443 };
        Some(format!("{}:{}", endpoint.host()?, endpoint.port_u16().unwrap_or(usual)))
    }

    /// The bucket, for people. Without credentials.
    pub(crate) fn place(&self) -> String {
        let at = self.endpoint.as_deref().map(|endpoint| format!(" at {endpoint}")).unwrap_or_default();
        format!("{}://{}{at}", self.provider.kind(), self.bucket)
    }

    fn s3(&self) -> AmazonS3Builder {
        let access = &self.access;
        let mut builder = access
            .s3_settings()
            .with_bucket_name(&self.bucket)
            .with_virtual_hosted_style_request(access.virtual_hosted)
            .with_http_connector(self.connector.clone());
        if access.allow_http {
            builder = builder.with_allow_http(true);
        }
        if access.unsigned {
            builder = builder.with_skip_signature(true);
        }
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some((user, secret)) = access.login() {
            builder = builder.with_access_key_id(user).with_secret_access_key(secret);
        }
        builder
    }

    fn google(&self) -> GoogleCloudStorageBuilder {
        let access = &self.access;
        let mut builder = GoogleCloudStorageBuilder::new();
        if let Some(path) = access.environment.get("SERVICE_ACCOUNT") {
            builder = builder.with_service_account_path(path);
        }
        for (key, value) in access.environment.settings("GOOGLE_") {
            builder = builder.with_config(key, value);
        }
        builder = builder.with_bucket_name(&self.bucket).with_http_connector(self.connector.clone());
        if access.allow_http {
            builder = builder.with_client_options(object_store::ClientOptions::new().with_allow_http(true));
        }
        if access.unsigned {
            builder = builder.with_skip_signature(true);
        }
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_base_url(endpoint);
        }
        if let Some(path) = &access.key_file {
            builder = builder.with_service_account_path(path);
        }
        builder
    }

    fn azure(&self) -> MicrosoftAzureBuilder {
        let access = &self.access;
        let mut builder = MicrosoftAzureBuilder::new();
        // An account and its key in the address replace all of the environment.
        if access.login().is_none() {
            for (key, value) in access.environment.settings("AZURE_") {
                builder = builder.with_config(key, value);
            }
            if let Some(endpoint) = access.environment.get("IDENTITY_ENDPOINT") {
                builder = builder.with_msi_endpoint(endpoint);
            }
        }
        builder = builder.with_container_name(&self.bucket).with_http_connector(self.connector.clone());
        if access.allow_http {
            builder = builder.with_allow_http(true);
        }
        if access.unsigned {
            builder = builder.with_skip_signature(true);
        }
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        if let Some((account, key)) = access.login() {
            builder = builder.with_account(account).with_access_key(key);
        }
        builder
    }
}

fn parse_span(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let span = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        _ => return None,
    };
    (!span.is_zero()).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Meter, ObjectClient};

    fn parse_in(text: &str, environment: &[(&str, &str)]) -> Result<Target, AddressError> {
        let variables = environment.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Target::parse(text, &mut Options::default(), Environment::of(variables))
    }

    fn parse(text: &str) -> Result<Target, AddressError> {
        parse_in(text, &[])
    }

    #[test]
    fn an_address_says_where_and_how() {
        let mut options = Options::default();
        let text =
            "s3://key:sec%2Fret@bucket/a/b?endpoint=http://127.0.0.1:1&allow_http=true&region=eu&poll=200ms";
        let target = Target::parse(text, &mut options, Environment::default()).unwrap();
        assert_eq!((target.bucket.as_str(), target.prefix.as_ref()), ("bucket", "a/b"));
        assert_eq!(options.poll_every, Duration::from_millis(200));
        assert_eq!(options.poll_first, options.poll_every);
        assert_eq!(target.place(), "s3://bucket at http://127.0.0.1:1");
        assert_eq!(target.server().as_deref(), Some("127.0.0.1:1"));
        let server = |text: &str| parse(text).unwrap().server();
        assert_eq!(server("s3://bucket?region=eu-west-1").as_deref(), Some("s3.eu-west-1.amazonaws.com:443"));
        assert_eq!(server("gs://bucket?unsigned=true").as_deref(), Some("storage.googleapis.com:443"));
        assert!(!format!("{target:?}").contains("sec/ret"));
        target.client().unwrap();
        parse("gs://bucket/p?unsigned=true").unwrap().client().unwrap();
        parse("az://account:a2V5@container/p").unwrap().client().unwrap();
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let error = parse("s3://a,b/x?endpoint=http://h&poll=soon&colour=red&ca=/none").unwrap_err();
        assert_eq!(error.0.len(), 5, "{error}");
        for via in ["nowhere", "a:b", "a:1/x", ""] {
            assert!(parse(&format!("s3://bucket/x?via={via}")).is_err(), "{via}");
        }
        assert!(parse("ftp://bucket").is_err());
        assert!(parse("s3://bucket/x?poll=10m").unwrap_err().to_string().contains("1m or less"));
        assert!(parse("s3://bucket/x?poll=2h").unwrap_err().to_string().contains("at most 1m"));
        parse("s3://bucket/x?poll=1m").unwrap();
        let error = parse("s3://My_Bucket/x?endpoint=127.0.0.1:9000&region=a%20b").unwrap_err();
        assert_eq!(error.0.len(), 3, "{error}");
    }

    #[test]
    fn credentials_in_the_address_replace_all_of_the_environment() {
        let environment = [
            ("AWS_ACCESS_KEY_ID", "theirs"),
            ("AWS_SECRET_ACCESS_KEY", "theirs"),
            ("AWS_SESSION_TOKEN", "stale"),
        ];
        let of = |text: &str| {
            let builder = parse_in(text, &environment).unwrap().s3();
            use AmazonS3ConfigKey::{AccessKeyId, SecretAccessKey, Token};
            [AccessKeyId, SecretAccessKey, Token].map(|key| builder.get_config_value(&key))
        };
        assert_eq!(of("s3://ours:secret@bucket"), [Some("ours".into()), Some("secret".into()), None]);
        assert_eq!(of("s3://bucket"), [Some("theirs".into()), Some("theirs".into()), Some("stale".into())]);
        assert!(parse_in("s3://ours@bucket", &environment).is_err(), "half of it is a mistake");
    }

    #[test]
    fn what_is_around_a_value_of_the_environment_is_not_a_part_of_it() {
        let target =
            parse_in("s3://bucket", &[("AWS_ACCESS_KEY_ID", "AKIA\n"), ("AWS_REGION", " eu \r\n")]).unwrap();
        let value = |key| target.s3().get_config_value(&key);
        assert_eq!(value(AmazonS3ConfigKey::AccessKeyId).as_deref(), Some("AKIA"));
        assert_eq!(value(AmazonS3ConfigKey::Region).as_deref(), Some("eu"));
        for (name, value) in [
            ("AWS_ACCESS_KEY_ID", "AK\nIA"),
            ("AWS_SECRET_ACCESS_KEY", "a\u{e9}"),
            ("AWS_SESSION_TOKEN", "to ken"),
            ("AWS_ENDPOINT_URL", "127.0.0.1:9000"),
            ("AWS_REGION", "a/b"),
        ] {
            let error = parse_in("s3://bucket", &[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains(value), "{error}");
        }
    }

    #[test]
    fn names_that_no_bucket_can_have_are_refused() {
        let long = "x".repeat(64);
        for name in
            ["b1", "Bucket", "a_b", "-ab", "ab-", "a..b", "192.168.0.1", "a%20b", &long, "b\u{fc}cket"]
        {
            let error = parse(&format!("s3://{name}/p")).unwrap_err().to_string();
            assert!(error.contains("bucket"), "{error}");
        }
        for good in ["s3://abc", "s3://my.logs-2026/p", "gs://a_b?unsigned=true", "az://x:a2V5@a-b"] {
            parse(good).unwrap();
        }
        assert!(parse("az://x:a2V5@a.b").is_err() && parse("az://x:a2V5@a--b").is_err());
    }

    /// Any address and environment is either refused with an error message or leads to a request.
    #[tokio::test]
    async fn nothing_that_people_write_makes_the_client_panic() {
        let odd = [
            "",
            " ",
            "a b",
            "%0a",
            "x%0Ay",
            "%0d%0a",
            "%00",
            "%25",
            "%ff",
            "\u{e9}",
            "\u{1f980}",
            "foo",
            "..",
            ".",
            "/",
            "//",
            "?",
            "#",
            "a#b",
            "%3f",
            "%23",
            "@",
            ":",
            "::",
            "[",
            "[::1]",
            "[::1",
            "http:",
            "http:/",
            "http://",
            "https://",
            "ftp://h",
            "http://h",
            "http://:1",
            "http://h:",
            "http://h:0",
            "http://h:99999",
            "http://h:x",
            "http://h h",
            "http://h/a%20b",
            "http://h/%25",
            "http://u:p%40h",
            "http://h?x=1",
            "http://[::1]:9",
            "http://[x]",
            "http://999999999999",
            "http://1.2.3",
            "http://1.2.3.4",
            "http://xn--a",
            "http://-",
            "http://..",
            "http://h..h",
            "http://h/../x",
            "127.0.0.1:9",
            "localhost:9000",
            "HTTP://h",
            "http://h%0a",
            "http://\u{e9}",
            "0x7f",
            "99999",
            "-",
            "=",
            "&",
            "%2F",
            "\\",
        ];
        let rest = "via=127.0.0.1:9&timeout=300ms&allow_http=true";
        let here = "endpoint=http://127.0.0.1:9";
        let templates = [
            format!("s3://key:secret@{{}}/p?{here}&{rest}"),
            format!("s3://key:secret@bucket/{{}}?{here}&{rest}"),
            format!("s3://{{}}:secret@bucket/p?{here}&{rest}"),
            format!("s3://key:{{}}@bucket/p?{here}&{rest}"),
            format!("s3://key:secret@bucket/p?endpoint={{}}&{rest}"),
            format!("s3://key:secret@bucket/p?endpoint={{}}&virtual_hosted=true&{rest}"),
            format!("s3://key:secret@bucket/p?{here}&region={{}}&{rest}"),
            format!("s3://key:secret@bucket/p?region={{}}&virtual_hosted=true&{rest}"),
            format!("s3://key:secret@bucket/p?{here}&allow_http=true&via={{}}&timeout=300ms"),
            format!("gs://{{}}/p?unsigned=true&{rest}"),
            format!("gs://bucket/{{}}?unsigned=true&endpoint={{}}&{rest}"),
            format!("gs://bucket/p?key_file={{}}&{rest}"),
            format!("az://{{}}:a2V5@container/p?{rest}"),
            format!("az://account:{{}}@container/p?{rest}"),
            format!("az://account:a2V5@{{}}/p?{rest}"),
            format!("az://account:a2V5@container/p?endpoint={{}}&{rest}"),
        ];
        let (mut refused, mut sent) = (0, 0);
        for text in templates.iter().flat_map(|template| odd.iter().map(|odd| template.replace("{}", odd))) {
            match parse(&text).map_err(StoreError::from).and_then(|target| Ok((target.client()?, target))) {
                Err(_) => refused += 1,
                Ok((client, target)) => {
                    let within = Duration::from_millis(300);
                    let wire = ObjectClient::new(
                        client,
                        target.prefix,
                        "odd".into(),
                        within,
                        Arc::new(Meter::default()),
                    );
                    let _ = wire.knock().await;
                    sent += 1;
                }
            }
        }
        assert!(refused > 300 && sent > 100, "{refused} refused, {sent} sent");
        let names = [
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_REGION",
            "AWS_ENDPOINT_URL",
        ];
        for (name, odd) in
            names.iter().flat_map(|name| odd.iter().map(move |odd| (name, odd.replace("%0a", "\n"))))
        {
            let mut environment = vec![("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];
            environment.retain(|(other, _)| other != name);
            environment.push((*name, &odd));
            let Ok(target) = parse_in(&format!("s3://bucket/p?{rest}"), &environment) else { continue };
            let Ok(client) = target.client() else { continue };
            let within = Duration::from_millis(300);
            let _ =
                ObjectClient::new(client, target.prefix, "odd".into(), within, Arc::new(Meter::default()))
                    .knock()
                    .await;
        }
    }
}
