//! D-Bus, for desktops of which Clew knows nothing: whoever decides what is in front calls
//! `org.clew.Session1.Front(u pid)` at `/org/clew/Session1` of `org.clew.Session1`, on the session's bus.
//! Only the user's own processes are heeded, as callers and as what is in front.

use std::convert::Infallible;
use std::sync::Arc;

use clew_live::control::trusted_path::own_uid;
use zbus::blocking::MessageIterator;
use zbus::blocking::connection::Builder;
use zbus::fdo::{self, DBusProxy};
use zbus::message::Header;
use zbus::names::BusName;

use super::{Front, Gone, Said};
use crate::latest::Latest;

/// Name and interface.
pub const NAME: &str = "org.clew.Session1";
/// Where the object is.
pub const PATH: &str = "/org/clew/Session1";

/// The bus of this session.
pub struct Bus;

struct Session {
    tell: Arc<Latest<Said>>,
}

#[zbus::interface(name = "org.clew.Session1")]
impl Session {
    /// The app of this process is in front from now on.
    async fn front(
        &self,
        pid: u32,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &zbus::Connection,
    ) -> fdo::Result<()> {
        let denied = |why: &str| fdo::Error::AccessDenied(why.to_string());
        let caller = header.sender().ok_or_else(|| denied("nobody knows who you are"))?;
        let bus = DBusProxy::new(connection).await?;
        let uid = bus.get_connection_unix_user(BusName::Unique(caller.to_owned())).await?;
        if uid != own_uid() {
            return Err(denied("this is another user's session"));
        }
        if crate::kin::user_of(pid) != Some(own_uid()) {
            return Err(fdo::Error::InvalidArgs(format!("process {pid} is not this user's")));
        }
        self.tell.say(Said::Front(pid));
        Ok(())
    }
}

impl Front for Bus {
    fn name(&self) -> &'static str {
        "dbus"
    }

    fn follow(&mut self, tell: &Arc<Latest<Said>>) -> Result<Infallible, Gone> {
        let gone = |error: zbus::Error| Gone(error.to_string());
        let session = Session { tell: tell.clone() };
        let builder =
            Builder::session().and_then(|bus| bus.serve_at(PATH, session)).map_err(gone)?;
        let bus = builder.name(NAME).and_then(Builder::build).map_err(gone)?;
        // Until the bus ends.
        for message in MessageIterator::from(&bus) {
            message.map_err(gone)?;
        }
        Err(Gone("the bus has ended".to_string()))
    }
}
