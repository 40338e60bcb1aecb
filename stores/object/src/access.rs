//! The credentials and settings of a bucket, from the address and from the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::str::FromStr;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

use crate::target::Provider;

/// Everything that a builder needs. It is never printed.
pub(crate) struct Access {
    pub(crate) user: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) key_file: Option<String>,
    pub(crate) allow_http: bool,
    pub(crate) virtual_hosted: bool,
    pub(crate) unsigned: bool,
    pub(crate) environment: Environment,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// What the providers' tools read from the environment, each value without blanks and line ends around it: what comes
/// from a file or a Kubernetes Secret often ends in one.
#[derive(Clone, Default)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// That of this process.
    pub(crate) fn of_process() -> Self {
        let plain =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Environment::of(std::env::vars_os().filter_map(plain))
    }

    pub(crate) fn of(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let wanted = |name: &str| {
            ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|prefix| name.starts_with(prefix))
                || ["SERVICE_ACCOUNT", "IDENTITY_ENDPOINT", "LEASEHOLD_STORE_PASSWORD"].contains(&name)
        };
        let trimmed = |(name, value): (String, String)| (name, value.trim().to_owned());
        Environment(variables.into_iter().filter(|(name, _)| wanted(name)).map(trimmed).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// What a client library knows of it.
    pub(crate) fn settings<K: FromStr>(&self, prefix: &str) -> impl Iterator<Item = (K, &String)> {
        let known = self.0.iter().filter(move |(name, _)| name.starts_with(prefix));
        known.filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)))
    }
}

impl Access {
    /// The credentials in the address.
    pub(crate) fn login(&self) -> Option<(&str, &str)> {
        self.user.as_deref().zip(self.secret.as_deref())
    }

    /// What the environment says about S3. Credentials in the address replace all three of the environment.
    pub(crate) fn s3_settings(&self) -> AmazonS3Builder {
        use AmazonS3ConfigKey::{AccessKeyId, SecretAccessKey, Token};
        let mut builder = AmazonS3Builder::new();
        for (key, value) in self.environment.settings("AWS_") {
            let replaced = self.login().is_some() && matches!(key, AccessKeyId | SecretAccessKey | Token);
            if !replaced && !value.is_empty() {
                builder = builder.with_config(key, value);
            }
        }
        builder
    }

    /// Everything in the address or the environment that the client library would reject.
    pub(crate) fn wrong(
        &self,
        provider: Provider,
        bucket: &str,
        endpoint: Option<&str>,
        region: Option<&str>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        let builder = self.s3_settings();
        let ambient = |key| builder.get_config_value(&key).filter(|_| provider == Provider::S3);
        let hosted = self.virtual_hosted.then_some(bucket).filter(|_| provider == Provider::S3);
        let endpoints = [
            ("endpoint", endpoint.map(str::to_owned)),
            ("AWS_ENDPOINT_URL", ambient(AmazonS3ConfigKey::Endpoint).filter(|_| endpoint.is_none())),
        ];
        for (name, url) in endpoints {
            if let Some(problem) = url.and_then(|url| wrong_endpoint(&url, hosted)) {
                problems.push(format!("invalid value of `{name}`: {problem}"));
            }
        }
        let regions = [
            ("region", region.map(str::to_owned)),
            ("AWS_REGION", ambient(AmazonS3ConfigKey::Region).filter(|_| region.is_none())),
        ];
        for (name, region) in regions {
            let fits = |text: &str| {
                (1..=63).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            };
            if region.is_some_and(|region| !fits(&region)) {
                problems.push(format!("invalid value of `{name}`: write a region such as eu-west-1"));
            }
        }
        let secrets = [
            ("the key in the address", self.user.clone()),
            ("the secret of the address", self.secret.clone().filter(|_| self.user.is_some())),
            ("AWS_ACCESS_KEY_ID", ambient(AmazonS3ConfigKey::AccessKeyId)),
            ("AWS_SECRET_ACCESS_KEY", ambient(AmazonS3ConfigKey::SecretAccessKey)),
            ("AWS_SESSION_TOKEN", ambient(AmazonS3ConfigKey::Token)),
        ];
        for (name, secret) in secrets {
            if secret.is_some_and(|secret| secret.is_empty() || !secret.bytes().all(|b| b.is_ascii_graphic()))
            {
                problems.push(format!(
                    "{name} is empty, or contains a space, a line break or a character that keys never have"
                ));
            }
        }
        problems
    }
}

/// What is wrong with where a server is said to be. `hosted` is the bucket whose name stands before that of the host.
fn wrong_endpoint(text: &str, hosted: Option<&str>) -> Option<&'static str> {
    let url = "write a URL such as https://host:port, without credentials, spaces or a question mark";
    let Some((scheme @ ("http" | "https"), rest)) = text.split_once("://") else {
        return Some("it must begin with http:// or https://");
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if authority.is_empty() || !path.bytes().all(|byte| plain(byte) || byte == b'/') {
        return Some(url);
    }
    if !authority.bytes().all(|byte| plain(byte) || b"[]:".contains(&byte)) {
        return Some(url);
    }
    let named = hosted.map(|bucket| format!("{scheme}://{bucket}.{rest}"));
    let reads = |text: &str| {
        url::Url::parse(text).is_ok_and(|url| url.port() != Some(0)) && text.parse::<hyper::Uri>().is_ok()
    };
    match (reads(text), named.as_deref().is_none_or(reads)) {
        (true, true) => None,
        (true, false) => Some("with virtual_hosted=true it must be a host name, not an IP address"),
        (false, _) => Some("write a URL such as https://host:port, with a port from 1 to 65535"),
    }
}
