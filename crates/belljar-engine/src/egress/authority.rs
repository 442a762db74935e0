//! TLS on both sides of the engine: with guests, under an authority that only this engine's sandboxes trust, and with hosts,
//! whom this machine trusts.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::egress::HostName;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SerialNumber,
};
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// What is spoken within TLS: requests are looked at one after the other, as the first version has them.
const PROTOCOL: &[u8] = b"http/1.1";
/// The most names whose certificates are kept.
const MOST_KEPT: usize = 1024;

/// An engine's own, made when it is first needed. Its keys are in this process and nowhere else.
#[derive(Clone, Default)]
pub(crate) struct Authorities(Arc<Mutex<Option<Arc<Authority>>>>);

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorities")
    }
}

impl Authorities {
    /// The engine's authority.
    pub(crate) fn get(&self) -> io::Result<Arc<Authority>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(authority) = known.as_ref() {
            return Ok(Arc::clone(authority));
        }
        let made = Arc::new(Authority::new()?);
        Ok(Arc::clone(known.insert(made)))
    }
}

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Of all certificates.
    key: KeyPair,
    /// For guests: those whom this machine trusts, and this one.
    bundle: Arc<[u8]>,
    client: Arc<ClientConfig>,
    servers: Mutex<HashMap<HostName, Arc<ServerConfig>>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    fn new() -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = named("belljar, for this engine's sandboxes alone")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let own = params.self_signed(&key).map_err(io::Error::other)?;
        // What cannot be read is not trusted; a host whom nobody vouches for is not told anything.
        let trusted = rustls_native_certs::load_native_certs().certs;
        let mut bundle = String::new();
        for certificate in trusted.iter().chain([own.der()]) {
            bundle.push_str(&pem(certificate));
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted);
        let provider = Arc::new(ring::default_provider());
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self {
            issuer: Issuer::new(params, key),
            key: KeyPair::generate().map_err(io::Error::other)?,
            bundle: bundle.into_bytes().into(),
            client: Arc::new(client),
            servers: Mutex::default(),
        })
    }

    /// Whom guests are to trust.
    pub(crate) fn bundle(&self) -> Arc<[u8]> {
        Arc::clone(&self.bundle)
    }

    /// For speaking with hosts.
    pub(super) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// For speaking with guests in the name of a host.
    pub(super) fn server(&self, name: &HostName) -> io::Result<Arc<ServerConfig>> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = servers.get(name) {
            return Ok(Arc::clone(known));
        }
        let mut params = named(name.as_str())?;
        params.subject_alt_names = CertificateParams::new([name.to_string()])
            .map_err(io::Error::other)?
            .subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        // Each its own, or some take two hosts for one that changed its mind.
        params.serial_number = Some(SerialNumber::from(Sha256::digest(name.as_str())[..16].to_vec()));
        let certificate = params
            .signed_by(&self.key, &self.issuer)
            .map_err(io::Error::other)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        if servers.len() >= MOST_KEPT {
            servers.clear();
        }
        let config = Arc::new(config);
        servers.insert(name.clone(), Arc::clone(&config));
        Ok(config)
    }
}

fn named(text: &str) -> io::Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
    // A name is at most so long there.
    let short: String = text.chars().take(64).collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, short);
    Ok(params)
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_has_one_authority_and_a_host_one_certificate() {
        let authorities = Authorities::default();
        let authority = authorities.get().unwrap();
        assert!(Arc::ptr_eq(&authority, &authorities.get().unwrap()));
        let bundle = String::from_utf8(authority.bundle().to_vec()).unwrap();
        assert!(bundle.ends_with("-----END CERTIFICATE-----\n") && !bundle.contains("PRIVATE"));
        let name = HostName::new("a.example.com").unwrap();
        let config = authority.server(&name).unwrap();
        assert!(Arc::ptr_eq(&config, &authority.server(&name).unwrap()));
        assert_eq!(config.alpn_protocols, [PROTOCOL]);
        let other = Authorities::default().get().unwrap();
        assert_ne!(authority.bundle(), other.bundle());
    }
}
