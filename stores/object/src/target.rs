//! Which bucket an address means, and with which credentials.

use std::sync::Arc;
use std::time::Duration;

use leasehold_store::{Address, AddressError, StoreError};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpConnector as _, HttpRequest, HttpRequestBody};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{ObjectStore, RetryConfig};

use crate::http::Connector;
use crate::options::Options;
use crate::trouble::refused;

/// Who keeps the bucket.
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

/// Everything that a builder needs. It is never shown.
struct Access {
    user: Option<String>,
    secret: Option<String>,
    key_file: Option<String>,
    allow_http: bool,
    virtual_hosted: bool,
    unsigned: bool,
    from_environment: bool,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Whether the environment is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Environment {
    Used,
    #[cfg(test)]
    Ignored,
}

impl Target {
    /// Reads an address, and tells of all that is wrong with it at once.
    pub(crate) fn parse(
        text: &str,
        options: &mut Options,
        environment: Environment,
    ) -> Result<Self, AddressError> {
        let from_environment = environment == Environment::Used;
        let variable = |name: &str| std::env::var(name).ok().filter(|_| from_environment);
        let mut address = Address::parse(text, variable)?;
        let provider = match address.scheme.as_str() {
            "s3" => Provider::S3,
            "gs" => Provider::Google,
            "az" => Provider::Azure,
            other => {
                address.wrong(format!("`{other}` is no object store (there are s3, gs and az)"));
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
            address.wrong("the prefix cannot be used: write names with slashes between them");
            Path::default()
        });
        let yes_or_no = "must be true or false";
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
            from_environment,
        };
        if endpoint.as_deref().is_some_and(|url| url.starts_with("http://")) && !access.allow_http {
            address.wrong("the endpoint is not encrypted: say allow_http=true if that is meant");
        }
        for (name, span) in [("poll", &mut options.poll_every), ("timeout", &mut options.request_within)] {
            if let Some(text) = address.param(name) {
                match parse_span(&text) {
                    Some(found) => *span = found,
                    None => address
                        .wrong(format!("the value of `{name}` is wrong: a time such as 500ms, 6s or 1m")),
                }
            }
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
        built.map_err(|e| refused(format!("{} cannot be opened: {e}", self.place())))
    }

    /// A signed question to S3 that the client library has no call for, such as `lifecycle`; the status and the answer.
    pub(crate) async fn ask(&self, about: &str) -> Result<(u16, String), StoreError> {
        let fail =
            |what: &dyn std::fmt::Display| refused(format!("{} cannot be asked: {what}", self.place()));
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
        *request.uri_mut() = uri.parse().map_err(|_| fail(&"the endpoint is no URL"))?;
        AwsAuthorizer::new(&credential, "s3", &region)
            .try_authorize(&mut request, None)
            .map_err(|e| fail(&e))?;
        let client = self.connector.connect(&object_store::ClientOptions::new()).map_err(|e| fail(&e))?;
        let answer = client.execute(request).await.map_err(|_| fail(&"nobody answers"))?;
        let status = answer.status().as_u16();
        let body = answer.into_body().bytes().await.map_err(|_| fail(&"the answer broke off"))?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// The host and port that connections are made to.
    pub(crate) fn server(&self) -> Option<String> {
        let endpoint = match self.provider {
            Provider::S3 => {
                let builder = self.s3();
                let configured = |key| builder.get_config_value(&key);
                configured(AmazonS3ConfigKey::Endpoint).or_else(|| {
                    let region = configured(AmazonS3ConfigKey::Region)?;
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
        let mut builder = match access.from_environment {
            true => AmazonS3Builder::from_env(),
            false => AmazonS3Builder::new(),
        };
        builder = builder
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
        if let Some(user) = &access.user {
            builder = builder.with_access_key_id(user);
        }
        if let (Some(_), Some(secret)) = (&access.user, &access.secret) {
            builder = builder.with_secret_access_key(secret);
        }
        builder
    }

    fn google(&self) -> GoogleCloudStorageBuilder {
        let access = &self.access;
        let mut builder = match access.from_environment {
            true => GoogleCloudStorageBuilder::from_env(),
            false => GoogleCloudStorageBuilder::new(),
        };
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
        let mut builder = match access.from_environment {
            true => MicrosoftAzureBuilder::from_env(),
            false => MicrosoftAzureBuilder::new(),
        };
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
        if let Some(account) = &access.user {
            builder = builder.with_account(account);
        }
        if let (Some(_), Some(key)) = (&access.user, &access.secret) {
            builder = builder.with_access_key(key);
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

    fn parse(text: &str) -> Result<Target, AddressError> {
        Target::parse(text, &mut Options::default(), Environment::Ignored)
    }

    #[test]
    fn an_address_says_where_and_how() {
        let mut options = Options::default();
        let text =
            "s3://key:sec%2Fret@bucket/a/b?endpoint=http://127.0.0.1:1&allow_http=true&region=eu&poll=200ms";
        let target = Target::parse(text, &mut options, Environment::Ignored).unwrap();
        assert_eq!((target.bucket.as_str(), target.prefix.as_ref()), ("bucket", "a/b"));
        assert_eq!(options.poll_every, Duration::from_millis(200));
        assert_eq!(options.poll_first, options.poll_every);
        assert_eq!(target.place(), "s3://bucket at http://127.0.0.1:1");
        assert_eq!(target.server().as_deref(), Some("127.0.0.1:1"));
        let server = |text: &str| parse(text).unwrap().server();
        assert_eq!(server("s3://b?region=eu-west-1").as_deref(), Some("s3.eu-west-1.amazonaws.com:443"));
        assert_eq!(server("gs://b?unsigned=true").as_deref(), Some("storage.googleapis.com:443"));
        assert!(!format!("{target:?}").contains("sec/ret"));
        target.client().unwrap();
        parse("gs://bucket/p?unsigned=true").unwrap().client().unwrap();
        parse("az://account:a2V5@container/p").unwrap().client().unwrap();
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let error = parse("s3://a,b/x?endpoint=http://h&poll=soon&colour=red&ca=/none").unwrap_err();
        assert_eq!(error.0.len(), 5, "{error}");
        for via in ["nowhere", "a:b", "a:1/x", ""] {
            assert!(parse(&format!("s3://b/x?via={via}")).is_err(), "{via}");
        }
        assert!(parse("ftp://bucket").is_err());
    }
}
